-- name: InsertPasskey :exec
INSERT INTO passkey (id, user_id, credential_id, credential, name) VALUES (@id, @user_id, @credential_id, @credential, @name);

-- name: ListPasskeys :many
SELECT id, name, credential, created_at, last_used_at FROM passkey WHERE user_id = $1 ORDER BY created_at, id;

-- name: LockPasskeys :many
SELECT id, credential FROM passkey WHERE user_id = $1 ORDER BY id FOR UPDATE;

-- name: UsePasskey :execrows
UPDATE passkey SET credential = @credential, last_used_at = clock_timestamp() WHERE credential_id = @credential_id AND user_id = @user_id;

-- name: RenamePasskey :execrows
UPDATE passkey SET name = @name WHERE id = @id AND user_id = @user_id;

-- name: DeletePasskey :execrows
DELETE FROM passkey WHERE id = @id AND user_id = @user_id;

-- name: DeletePasskeysOfUser :exec
DELETE FROM passkey WHERE user_id = $1;
