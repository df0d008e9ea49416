"""Jobs on a standalone cluster and through Spark Connect."""
