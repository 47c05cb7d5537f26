"""Views over joins, kept by factorized maintenance: variable orders, view trees, triggers and their execution."""
