-- name: LockOrg :one
-- Changes of an org's members are made one after the other.
SELECT name FROM org WHERE id = $1 FOR NO KEY UPDATE;

-- name: LockUser :one
SELECT email, (email_verified_at IS NOT NULL)::boolean AS verified FROM app_user WHERE id = $1 FOR UPDATE;

-- name: LockOrgsOfUser :many
SELECT o.id FROM org o JOIN membership m ON m.org_id = o.id WHERE m.user_id = $1 ORDER BY o.id FOR NO KEY UPDATE OF o;

-- name: MemberRole :one
SELECT role FROM membership WHERE org_id = @org_id AND user_id = @user_id;

-- name: ShareMembership :one
-- The role of a member, which stays until the transaction ends.
SELECT role FROM membership WHERE org_id = @org_id AND user_id = @user_id FOR SHARE;

-- name: CountMembers :one
SELECT count(*) AS members, count(*) FILTER (WHERE role = 'owner') AS owners FROM membership WHERE org_id = $1;

-- name: ListMembers :many
SELECT m.user_id, u.email, u.name, m.role, m.created_at
FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = $1 ORDER BY m.created_at, m.user_id;

-- name: MemberByEmail :one
SELECT m.user_id FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = @org_id AND u.email = @email;

-- name: SetMemberRole :exec
UPDATE membership SET role = @role WHERE org_id = @org_id AND user_id = @user_id;

-- name: DeleteMembership :exec
DELETE FROM membership WHERE org_id = @org_id AND user_id = @user_id;

-- name: MembershipsOfUser :many
SELECT o.id, o.name, o.personal, o.zone, m.role, m.created_at
FROM membership m JOIN org o ON o.id = m.org_id WHERE m.user_id = $1 ORDER BY o.personal DESC, o.name, o.id;

-- name: TokensOfMember :many
SELECT id, scopes FROM api_token WHERE org_id = @org_id AND user_id = @user_id AND revoked_at IS NULL ORDER BY id FOR UPDATE;

-- name: DeleteSessionsOfMember :execrows
DELETE FROM session WHERE org_id = @org_id AND user_id = @user_id;

-- name: DeleteSSHKeysOfMember :execrows
DELETE FROM ssh_key WHERE org_id = @org_id AND user_id = @user_id;

-- name: SwitchSession :execrows
UPDATE session SET org_id = @org_id
WHERE session.id = @id AND session.user_id = @user_id
  AND EXISTS (SELECT FROM membership m WHERE m.org_id = @org_id AND m.user_id = @user_id);

-- name: InsertInvitation :one
INSERT INTO org_invitation (id, org_id, email, role, secret_hash, created_by, expires_at)
VALUES (@id, @org_id, @email, @role, @secret_hash, @created_by, clock_timestamp() + make_interval(secs => @life_s::float8))
RETURNING created_at, expires_at;

-- name: CountInvitations :one
SELECT count(*) FROM org_invitation WHERE org_id = $1 AND ended_at IS NULL AND expires_at > clock_timestamp();

-- name: ListInvitations :many
SELECT i.id, i.email, i.role, i.created_at, i.expires_at, u.email AS inviter
FROM org_invitation i JOIN app_user u ON u.id = i.created_by
WHERE i.org_id = $1 AND i.ended_at IS NULL AND i.expires_at > clock_timestamp() ORDER BY i.id DESC;

-- name: InvitationsOfEmail :many
SELECT i.id, i.org_id, o.name AS org_name, i.role, i.expires_at, u.email AS inviter
FROM org_invitation i JOIN org o ON o.id = i.org_id JOIN app_user u ON u.id = i.created_by
WHERE i.email = $1 AND i.ended_at IS NULL AND i.expires_at > clock_timestamp() ORDER BY i.id DESC;

-- name: InvitationBySecret :one
SELECT i.id, i.org_id, o.name AS org_name, i.role, i.email, i.expires_at, u.email AS inviter
FROM org_invitation i JOIN org o ON o.id = i.org_id JOIN app_user u ON u.id = i.created_by
WHERE i.secret_hash = $1 AND i.ended_at IS NULL AND i.expires_at > clock_timestamp();

-- name: InvitationOrg :one
SELECT org_id FROM org_invitation WHERE id = $1;

-- name: LockInvitation :one
SELECT id, org_id, email, role, created_by FROM org_invitation
WHERE id = $1 AND ended_at IS NULL AND expires_at > clock_timestamp() FOR UPDATE;

-- name: EndInvitation :exec
UPDATE org_invitation SET outcome = @outcome, ended_at = clock_timestamp() WHERE id = @id AND ended_at IS NULL;

-- name: WithdrawInvitation :one
UPDATE org_invitation SET outcome = 'withdrawn', ended_at = clock_timestamp()
WHERE id = @id AND org_id = @org_id AND ended_at IS NULL AND expires_at > clock_timestamp() RETURNING role;

-- name: WithdrawInvitationsTo :exec
-- Expired ones, too: an address has one open invitation at most.
UPDATE org_invitation SET outcome = 'withdrawn', ended_at = clock_timestamp() WHERE org_id = @org_id AND email = @email AND ended_at IS NULL;

-- name: WithdrawInvitationsBy :execrows
UPDATE org_invitation SET outcome = 'withdrawn', ended_at = clock_timestamp() WHERE org_id = @org_id AND created_by = @created_by AND ended_at IS NULL;

-- name: DeleteOldInvitations :execrows
DELETE FROM org_invitation WHERE expires_at < statement_timestamp() - interval '30 days';

-- name: EraseInvitations :exec
-- Those to and from a person, and those of the orgs that end with them.
DELETE FROM org_invitation WHERE email = @email OR created_by = @created_by OR org_id = ANY (@orgs::uuid[]);

-- name: UserName :one
SELECT name FROM app_user WHERE id = $1;

-- name: UserEmail :one
SELECT email FROM app_user WHERE id = $1;
