"""The engine host: the child process in which Spark's session and the code of jobs live."""
