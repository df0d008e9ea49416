"""From messages to answers: flights and a venue's meters through broker, recorder and Spark.

$ make demo-pipeline
"""
