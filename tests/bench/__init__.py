"""The figures that README.md quotes, measured on this machine: `make bench`."""
