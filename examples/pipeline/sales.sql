-- Run with: headrace run examples/pipeline/sales.sql --available-now
-- Paths start at this file. The folder is made by generate.py.

CREATE TABLE sales (
    sale_id  BIGINT PRIMARY KEY,
    shop     STRING NOT NULL,
    day      DATE NOT NULL,
    quantity INT NOT NULL,
    price    DECIMAL(10, 2) NOT NULL
)
USING parquet
OPTIONS (path 'incoming', changes 'true');      -- the files have a __diff column: +1 inserts, -1 deletes

CREATE MATERIALIZED VIEW revenue_by_shop AS
SELECT shop, COUNT(*) AS sales, SUM(quantity * price) AS revenue, MAX(price) AS dearest
FROM sales
GROUP BY shop
ORDER BY shop;

CREATE MATERIALIZED VIEW good_months AS
SELECT year(day) AS year, month(day) AS month, SUM(quantity) AS units
FROM sales
GROUP BY year(day), month(day)
HAVING SUM(quantity) >= 750
ORDER BY year, month;
