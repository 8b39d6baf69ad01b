package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// StatementOf selects a statement: from one day to another, YYYY-MM-DD, both included; "" is the first of this month,
// and today. By is what the lines are grouped by; "" is the server's choice.
type StatementOf struct {
	From, To, By string
	Host         id.Host // of an operator's statement: this host alone
}

func (s StatementOf) query() url.Values {
	q := url.Values{}
	for k, v := range map[string]string{"from": s.From, "to": s.To, "by": s.By, "host": s.Host.String()} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return q
}

// Statement is what was charged over some days.
type Statement struct {
	From     string           `json:"from"`
	To       string           `json:"to"`
	Zone     string           `json:"zone"`
	Currency string           `json:"currency"`
	By       string           `json:"by"`
	Total    money.Nano       `json:"total"`
	Credited money.Nano       `json:"credited"` // came back between the days
	Net      money.Nano       `json:"net"`      // Total less Credited
	EnergyWh string           `json:"energy_wh"`
	Groups   []StatementGroup `json:"groups"`
	Lines    json.RawMessage  `json:"lines"`   // see the reference of the REST API
	Storage  json.RawMessage  `json:"storage"` // likewise
	Leases   json.RawMessage  `json:"leases"`  // likewise

	NotBilled []NotBilled `json:"not_billed"`
}

// StatementGroup is the sum of the lines of one group.
type StatementGroup struct {
	Key      string      `json:"key"`
	Name     string      `json:"name"`
	Seconds  json.Number `json:"seconds"`
	Cost     money.Nano  `json:"cost"`
	EnergyWh string      `json:"energy_wh"`
	GBHours  string      `json:"gb_hours,omitempty"` // that volumes stored; "": none
}

// Statement returns what was charged, by cluster, day, project, person, lease or label:KEY.
func (c *Client) Statement(ctx context.Context, s StatementOf) (Statement, error) {
	return get[Statement](ctx, c, "/billing/statement", s.query())
}

// StatementCSV returns the lines of a statement as CSV. The caller closes it.
func (c *Client) StatementCSV(ctx context.Context, s StatementOf) (io.ReadCloser, error) {
	return c.text(ctx, "/billing/statement.csv", s.query())
}

// EarningsStatement is what an operator's hosts earned over some days.
type EarningsStatement struct {
	From     string           `json:"from"`
	To       string           `json:"to"`
	Zone     string           `json:"zone"`
	Currency string           `json:"currency"`
	By       string           `json:"by"`
	Billed   money.Nano       `json:"billed"`
	Fee      money.Nano       `json:"fee"`
	Earned   money.Nano       `json:"earned"`
	Returned money.Nano       `json:"returned"`
	Net      money.Nano       `json:"net"`
	EnergyWh string           `json:"energy_wh"`
	Groups   []EarningsGroup  `json:"groups"`
	Lines    json.RawMessage  `json:"lines"` // see the reference of the REST API
	Leases   []EarningsLease  `json:"leases"`
	Returns  []EarningsReturn `json:"returns"`
	Holdback int64            `json:"holdback_seconds"`

	Standby         []EarningsStandby `json:"standby"`
	StandbyReceived money.Nano        `json:"standby_received"` // in neither Earned nor Net
	BondPaid        money.Nano        `json:"bond_paid"`
}

// EarningsStandby is what a host received for standing by in a gang, or what the bond paid.
type EarningsStandby struct {
	ID      id.LedgerTx `json:"id"`
	At      time.Time   `json:"at"`
	Kind    string      `json:"kind" enum:"standby,relief,bond" doc:"standby: received from another operator's bond. relief: received from the platform. bond: your bond paid"`
	Why     string      `json:"why"`
	Lease   string      `json:"lease_id" doc:"your lease"`
	Cluster string      `json:"cluster_id"`
	Amount  money.Nano  `json:"amount" doc:"below zero: your bond paid, the fee included"`
}

// EarningsGroup is the sum of the lines of one host, day or lease.
type EarningsGroup struct {
	Key     string      `json:"key"`
	Name    string      `json:"name"`
	Seconds json.Number `json:"seconds"`
	Billed  money.Nano  `json:"billed"`
	Fee     money.Nano  `json:"fee"`
	Earned  money.Nano  `json:"earned"`
}

// EarningsLease is the state of one lease's money.
type EarningsLease struct {
	Lease      id.Lease   `json:"lease_id"`
	HostID     id.Host    `json:"host_id"`
	HostName   string     `json:"host"`
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at"`
	Settled    bool       `json:"settled"`
	Earned     money.Nano `json:"earned"`
	InHoldback money.Nano `json:"in_holdback" doc:"booked, less than the holdback ago; of the pending of payouts, this lease's part"`
	NotBooked  money.Nano `json:"not_booked" doc:"measured, and not booked yet: a lease that runs is booked every quarter of an hour, and payouts count it from then on"`
	PayableAt  *time.Time `json:"payable_at" doc:"when all that was earned by now will be payable, some minutes later for what is not booked; null: it is"`
	Frozen     bool       `json:"frozen"`
}

// EarningsReturn is what was refunded to a renter.
type EarningsReturn struct {
	ID     id.LedgerTx `json:"id"`
	At     time.Time   `json:"at"`
	Kind   string      `json:"kind"`
	Why    string      `json:"why"`
	Lease  string      `json:"lease_id"`
	Amount money.Nano  `json:"amount"`
}

// EarningsStatement returns what the organisation's hosts earned, by host, day or lease.
func (c *Client) EarningsStatement(ctx context.Context, s StatementOf) (EarningsStatement, error) {
	return get[EarningsStatement](ctx, c, "/earnings/statement", s.query())
}

// EarningsCSV returns the lines of an earnings statement as CSV. The caller closes it.
func (c *Client) EarningsCSV(ctx context.Context, s StatementOf) (io.ReadCloser, error) {
	return c.text(ctx, "/earnings/statement.csv", s.query())
}

// text returns a response that is not JSON. The caller closes it.
func (c *Client) text(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, http.MethodGet, path, q, nil, "")
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp.Body, nil
}
