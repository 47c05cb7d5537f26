"""An hour of random changes to a location that does not grow: memory, files, descriptors and steps must stay flat."""
