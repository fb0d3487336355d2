"""
Spark: the accounts with the most deposits, from the whole journal.

    pip install 'slice-projections[spark]'
    PROJECTIONS_DSN=postgresql://localhost/ledger python busiest.py
"""

from pyspark.sql import functions as f

from spark_projections import read_journal, spark_running

with spark_running(app_name="busiest") as spark:
    events = read_journal(spark, entity_type="account")
    deposits = events.where(f.col("event_type") == "Deposited")
    amounts = deposits.withColumn("amount", f.get_json_object("payload", "$.amount").cast("long"))
    totals = amounts.groupBy("source_id").agg(f.count("*").alias("deposits"), f.sum("amount").alias("amount"))
    for row in totals.orderBy(f.desc("deposits"), "source_id").limit(10).collect():
        print(row.source_id, row.deposits, row.amount)
