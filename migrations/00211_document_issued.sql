-- +goose NO TRANSACTION
-- +goose Up
-- Documents by the time of issue, for lists of all series.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS document_issued;
CREATE INDEX CONCURRENTLY document_issued ON document (issued_at, key);
DROP INDEX CONCURRENTLY IF EXISTS document_org_issued;
CREATE INDEX CONCURRENTLY document_org_issued ON document (org_id, issued_at, key);
RESET lock_timeout;
RESET statement_timeout;
