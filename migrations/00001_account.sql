-- +goose Up
CREATE TABLE org (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,
    personal    boolean NOT NULL,
    zone        text NOT NULL DEFAULT 'UTC',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE app_user (
    id                uuid PRIMARY KEY,
    email             text NOT NULL,            -- lower case, erasable
    name              text NOT NULL DEFAULT '',
    password_hash     text NOT NULL,            -- argon2id, PHC string
    admin             boolean NOT NULL DEFAULT false,
    email_verified_at timestamptz,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX app_user_email ON app_user (email);

CREATE TABLE membership (
    org_id      uuid NOT NULL REFERENCES org,
    user_id     uuid NOT NULL REFERENCES app_user,
    role        text NOT NULL CHECK (role IN ('owner', 'member')),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, user_id)
);
CREATE INDEX membership_user ON membership (user_id);

CREATE TABLE api_token (
    id            uuid PRIMARY KEY,
    org_id        uuid NOT NULL REFERENCES org,
    user_id       uuid NOT NULL REFERENCES app_user,
    name          text NOT NULL,
    secret_hash   bytea NOT NULL,               -- sha256 of the secret; the secret is shown once
    hint          text NOT NULL,                -- last four characters, for people to tell tokens apart
    scopes        text[] NOT NULL,
    expires_at    timestamptz,
    last_used_at  timestamptz,
    revoked_at    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX api_token_secret ON api_token (secret_hash);
CREATE INDEX api_token_org ON api_token (org_id, id);

CREATE TABLE session (
    id            uuid PRIMARY KEY,
    user_id       uuid NOT NULL REFERENCES app_user,
    org_id        uuid NOT NULL REFERENCES org,
    secret_hash   bytea NOT NULL,
    previous_hash bytea,                        -- the secret before the last rotation: good for a minute more
    address       text NOT NULL DEFAULT '',
    user_agent    text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    rotated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL          -- whatever happens, it ends here
);
CREATE UNIQUE INDEX session_secret ON session (secret_hash);
CREATE UNIQUE INDEX session_previous ON session (previous_hash) WHERE previous_hash IS NOT NULL;
CREATE INDEX session_by_user ON session (user_id);

CREATE TABLE ssh_key (
    id           uuid PRIMARY KEY,
    org_id       uuid NOT NULL REFERENCES org,
    user_id      uuid NOT NULL REFERENCES app_user,
    name         text NOT NULL,
    public_key   text NOT NULL,                 -- authorized_keys form, without the comment
    fingerprint  text NOT NULL,                 -- SHA256:…
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (org_id, fingerprint)
);

-- Attempts that count against a limit (sign-ins per account and per address, sign-ups per address): kept here so that
-- every replica counts alike.
CREATE TABLE login_throttle (
    key           text PRIMARY KEY,             -- 'account:<email hash>', 'address:<prefix>', 'signup:<prefix>'
    failures      integer NOT NULL,
    window_start  timestamptz NOT NULL
);

CREATE TABLE idempotency_key (
    principal   text NOT NULL,                  -- 'tok:<uuid>' or 'user:<uuid>' or 'anon:<address>'
    method      text NOT NULL,
    path        text NOT NULL,
    key         text NOT NULL,
    body_hmac   bytea NOT NULL,
    status      integer NOT NULL DEFAULT 0,     -- 0 while the first call is still in its transaction
    response    bytea,                          -- encrypted when sealed
    sealed      boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (principal, method, path, key)
);
CREATE INDEX idempotency_key_expiry ON idempotency_key (expires_at);

CREATE TABLE audit_event (
    id           uuid PRIMARY KEY,
    org_id       uuid,
    user_id      uuid,
    token_id     uuid,
    action       text NOT NULL,                 -- 'cluster.rent', 'token.create', …
    object       text NOT NULL DEFAULT '',      -- prefixed id
    detail       jsonb NOT NULL DEFAULT '{}',   -- never secrets
    address      text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX audit_event_org ON audit_event (org_id, id);

CREATE TABLE notice (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    dedupe_key  text NOT NULL,                  -- one notice per cause: 'runway:1h:<cluster>'
    severity    text NOT NULL CHECK (severity IN ('info', 'warn', 'bad')),
    title       text NOT NULL,
    body        text NOT NULL DEFAULT '',
    object      text NOT NULL DEFAULT '',
    mailed_at   timestamptz,
    read_at     timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (org_id, dedupe_key)
);
