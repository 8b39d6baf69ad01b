-- The pause of everything that moves money at Stripe.

-- name: SendingPause :one
SELECT reason, since FROM sending_pause;

-- name: PauseSending :execrows
-- The first reason stands.
INSERT INTO sending_pause (reason, user_id) VALUES (@reason, @user_id) ON CONFLICT (one) DO NOTHING;

-- name: ResumeSending :execrows
DELETE FROM sending_pause;
