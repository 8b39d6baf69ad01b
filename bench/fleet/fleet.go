// Package fleet measures the control plane with many connected hosts. The hosts are simulated; they connect and report
// with the agent's own link code. Beside it, in the same run, the same hosts do the same with a bare NATS server that
// answers every request at once.
//
// The benchmark starts the server and the hosts as separate processes, directs them, and reads the meters. So each
// process needs one file descriptor for a connection, and the CPU times of the server and of the hosts are known
// separately. To measure a restart, the benchmark kills the server and starts it again.
package fleet

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/db"
)

// EnvHosts is the number of simulated hosts; without it, defaultHosts.
const EnvHosts = "MUSTER_FLEET_HOSTS"

const defaultHosts = 1000

// patience limits the time until the whole fleet has reported.
const patience = 10 * time.Minute

// hosts returns how many hosts to simulate.
func hosts() (int, error) {
	s := os.Getenv(EnvHosts)
	if s == "" {
		return defaultHosts, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 50_000 {
		return 0, fmt.Errorf("%s: want a number of hosts, not %q", EnvHosts, s)
	}
	return n, nil
}

// member is a simulated host, known to the platform.
type member struct {
	Host platform.Host
	Link []byte // seed of its link key
}

// enroll adds hosts to the database, with link keys.
func enroll(ctx context.Context, d *db.DB, n int) ([]member, error) {
	added, err := platform.AddFleet(ctx, d, platform.Fleet{Hosts: n, Operators: max(n/100, 1)})
	if err != nil {
		return nil, err
	}
	out := make([]member, n)
	ids, keys := make([]string, n), make([]string, n)
	for i, h := range added {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return nil, err
		}
		if keys[i], err = pair.PublicKey(); err != nil {
			return nil, err
		}
		seed, err := pair.Seed()
		if err != nil {
			return nil, err
		}
		ids[i], out[i] = h.ID.UUID().String(), member{h, seed}
	}
	for _, sql := range []string{
		"UPDATE host_key k SET link_key = r.key FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::text[]) AS key) r " +
			"WHERE k.host_id = r.id",
		"UPDATE host_status SET session = 0, connected = false, last_sync_at = NULL WHERE host_id = ANY($1::uuid[]) AND " +
			"$2::text[] IS NOT NULL",
	} {
		if _, err := d.Pool.Exec(ctx, sql, ids, keys); err != nil {
			return nil, err
		}
	}
	return out, nil
}
