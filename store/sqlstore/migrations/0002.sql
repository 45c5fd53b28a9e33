ALTER TABLE svc_api_keys ADD COLUMN rate_per_second DOUBLE PRECISION;

ALTER TABLE svc_api_keys ADD COLUMN rate_burst BIGINT;
