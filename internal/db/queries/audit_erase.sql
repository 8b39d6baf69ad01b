-- name: EraseAuditOfUser :exec
-- Acts stay, with the ids of who did what; addresses and names go.
UPDATE audit_event SET address = '', detail = detail - 'email' - 'name' WHERE user_id = @user_id AND org_id = ANY(@orgs::uuid[]);

-- name: EraseAuditAboutUser :exec
UPDATE audit_event SET detail = detail - 'email' WHERE object = $1 AND detail ? 'email';
