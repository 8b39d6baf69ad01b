package billingtest

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// OweStorage makes org owe an amount for storage that is unpaid for some time.
func OweStorage(t testing.TB, d *db.DB, org id.Org, amount money.Nano, unpaid time.Duration) {
	t.Helper()
	_, err := d.Pool.Exec(t.Context(), `WITH d AS (
			INSERT INTO data_domain (id, org_id, key_sealed) VALUES (gen_random_uuid(), $1, 'x') RETURNING id)
		INSERT INTO data_meter (domain_id, through_at, numerator, posted, unpaid_since, next_at)
		SELECT id, now(), $2::numeric * 3600000000000000000, 0, now() - $3::bigint * interval '1 microsecond',
			now() + interval '1 hour' FROM d`, org, int64(amount), unpaid.Microseconds())
	if err != nil {
		t.Fatal(err)
	}
}
