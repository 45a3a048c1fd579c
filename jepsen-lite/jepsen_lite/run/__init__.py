"""One run: a cluster, a load, misfortunes, healing, and the judgement."""
