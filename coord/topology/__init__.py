"""Files that tell where hosts stand, read into `Topology`: one module for each format."""
