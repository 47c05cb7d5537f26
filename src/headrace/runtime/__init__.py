"""Where steps run: programs of stages on Spark or inline, the state as files of a location, and the commit log."""
