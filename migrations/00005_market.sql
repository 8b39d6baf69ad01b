-- +goose Up
-- What a host sells, one row per GPU model on it. The free count is derived from the claims.
CREATE TABLE offer (
    id              uuid PRIMARY KEY,
    host_id         uuid NOT NULL REFERENCES host,
    gpu_model       text NOT NULL,
    price           bigint,                      -- micro-units per GPU-hour; NULL = not priced, not listed
    min_gpus        integer NOT NULL DEFAULT 1,
    max_duration_s  bigint NOT NULL DEFAULT 0,   -- 0 = no limit
    host_share_ppm  integer NOT NULL DEFAULT 850000 CHECK (host_share_ppm BETWEEN 0 AND 1000000),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (host_id, gpu_model)
);

CREATE TABLE offer_price (
    offer_id    uuid NOT NULL REFERENCES offer,
    price       bigint,
    changed_by  uuid,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (offer_id, at)
);

CREATE TABLE quote (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    user_id     uuid NOT NULL,
    spec        jsonb NOT NULL,                  -- market.Spec, secrets taken out
    secrets     bytea,                           -- market.Secrets, encrypted; gone once the quote has ended
    placement   jsonb NOT NULL,                  -- market.Placement with frozen prices and terms
    gpu_ids     uuid[] NOT NULL,                 -- those it holds
    rate        bigint NOT NULL,                 -- micro-units per hour, all-in
    state       text NOT NULL CHECK (state IN ('held', 'rented', 'returned', 'expired')),
    cluster_id  uuid,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz
);
CREATE INDEX quote_org ON quote (org_id, created_at);
CREATE INDEX quote_due ON quote (expires_at) WHERE state = 'held';
