-- name: EraseMailOfUser :exec
DELETE FROM mail WHERE user_id = @user_id OR address = @address::text;

-- name: EraseNoticesOfOrg :exec
DELETE FROM notice WHERE org_id = $1;
