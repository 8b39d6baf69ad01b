package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Gangs is what the rules of gangs did over some days, for platform operators.
type Gangs struct {
	Strikes   []GangStrikes `json:"strikes"`
	PairBans  []PairBan     `json:"pair_bans"`
	Relief    []GangRelief  `json:"relief"`
	Renters   []Unbilled    `json:"unbilled_by_renter"`
	Operators []Unbilled    `json:"unbilled_by_operator"`
}

// GangStrikes are the strikes of one host.
type GangStrikes struct {
	Host       id.Host   `json:"host_id"`
	HostName   string    `json:"host_name"`
	Org        id.Org    `json:"org_id"`
	Kind       string    `json:"kind"` // doubt, start, loss, undecided
	AgainstOrg id.Org    `json:"against_org_id"`
	Strikes    int64     `json:"strikes"`
	LastAt     time.Time `json:"last_at"`
}

// PairBan keeps a renter and a host, or two operators, out of one gang.
type PairBan struct {
	A     string    `json:"a"`
	AName string    `json:"a_name"`
	B     string    `json:"b"`
	BName string    `json:"b_name"`
	Until time.Time `json:"until"`
}

// GangRelief is what the platform paid for standing by in one cluster.
type GangRelief struct {
	Cluster  id.Cluster `json:"cluster_id"`
	Org      id.Org     `json:"org_id"`
	Name     string     `json:"name"`
	Relief   money.Nano `json:"relief"`
	Millis   int64      `json:"standby_ms"`
	UsageFee money.Nano `json:"usage_fee"`
	LastAt   time.Time  `json:"last_at"`
}

// Unbilled is time that was not billed, by organisation.
type Unbilled struct {
	Org         id.Org `json:"org_id"`
	Name        string `json:"name"`
	Clusters    int64  `json:"clusters"`
	Suspensions int64  `json:"suspensions"`
	Millis      int64  `json:"ms"`
	UndecidedMS int64  `json:"undecided_ms"`
}

// Gangs reads what the rules of gangs did in the last days.
func (c *Client) Gangs(ctx context.Context, days int) (Gangs, error) {
	return get[Gangs](ctx, c, "/admin/gangs", url.Values{"days": {strconv.Itoa(days)}})
}
