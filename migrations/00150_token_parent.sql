-- +goose Up
-- The token that made a token: revoking it revokes those it made. Null for tokens made in a session, and for those from
-- before this column.
ALTER TABLE api_token ADD COLUMN parent_id uuid REFERENCES api_token;
CREATE INDEX api_token_parent ON api_token (parent_id) WHERE parent_id IS NOT NULL;
