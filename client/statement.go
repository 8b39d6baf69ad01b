package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Statement is what was charged over some days.
type Statement struct {
	From     string     `json:"from"` // first day, YYYY-MM-DD in the org's zone
	To       string     `json:"to"`   // last day
	Zone     string     `json:"zone"`
	Currency string     `json:"currency"`
	By       string     `json:"by"`
	Total    money.Nano `json:"total" doc:"what was charged, before credits"`
	EnergyWh string     `json:"energy_wh"`
	// Credits came back between the days, for usage that was charged then or before.
	Credits  []InvoiceCredit    `json:"credits" doc:"what came back between the days, for usage that was charged then or before"`
	Credited money.Nano         `json:"credited" doc:"the sum of the credits"`
	Net      money.Nano         `json:"net" doc:"total less credited"`
	Groups   []StatementGroup   `json:"groups"`
	Lines    []StatementLine    `json:"lines"`
	Storage  []StatementStorage `json:"storage" doc:"what volumes store, by day"`
	Leases   []StatementLease   `json:"leases"` // terms, and what was not billed
	// NotBilled is time in which a cluster ran and not every rank was proven up, once it is decided.
	NotBilled []NotBilled `json:"not_billed" doc:"time between the days in which a cluster ran and not every rank was proven up, once it is decided"`
}

// StatementGroup is the sum of the lines of one group.
type StatementGroup struct {
	Key      string     `json:"key"`  // id, day, project, e-mail address or the label's value; "" = none
	Name     string     `json:"name"` // for people
	Seconds  Seconds    `json:"seconds"`
	Cost     money.Nano `json:"cost"`
	EnergyWh string     `json:"energy_wh"`
	GBHours  string     `json:"gb_hours,omitempty" doc:"what volumes stored, decimal"`
}

// StatementLine is what a lease used on one day at one price.
type StatementLine struct {
	Day          string            `json:"day"`
	Cluster      id.Cluster        `json:"cluster_id"`
	ClusterName  string            `json:"cluster"`
	Project      string            `json:"project"`
	Person       string            `json:"person" doc:"e-mail address of the person who rented the cluster; empty once that account is deleted"`
	Labels       map[string]string `json:"labels"`
	Lease        id.Lease          `json:"lease_id"`
	Rank         int               `json:"rank"`
	HostID       id.Host           `json:"host_id"`
	HostName     string            `json:"host"`
	GPUModel     string            `json:"gpu_model"`
	GPUs         int               `json:"gpus"`
	Seconds      Seconds           `json:"seconds"` // billed
	PricePerHour money.Micro       `json:"price_per_hour"`
	Cost         money.Nano        `json:"cost"`
	EnergyWh     string            `json:"energy_wh"`
}

// StatementStorage is what volumes stored on one day.
type StatementStorage struct {
	Day     string        `json:"day"`
	Domain  id.DataDomain `json:"domain_id" doc:"what a volume and its clones share, and is stored once"`
	Volume  string        `json:"volume" doc:"the name of the volume; of all that share what is stored"`
	GBHours string        `json:"gb_hours" doc:"decimal"`
	Cost    money.Nano    `json:"cost"`
}

// StatementLease is a lease of a statement: its terms, and the time of its life that was not billed.
type StatementLease struct {
	Lease     id.Lease         `json:"lease_id"`
	Cluster   id.Cluster       `json:"cluster_id"`
	Rank      int              `json:"rank"`
	StartedAt time.Time        `json:"started_at"`
	EndedAt   *time.Time       `json:"ended_at"`
	Settled   bool             `json:"settled"` // nothing will be added
	Prices    []StatementPrice `json:"prices"`
	// Outside: starting, suspended after a loss, stopping. Unproven: the cluster was up, but the host signed nothing
	// (yet).
	OutsideSeconds  Seconds `json:"outside_seconds"`
	UnprovenSeconds Seconds `json:"unproven_seconds"`
}

// StatementPrice is a price of a lease, from a moment on.
type StatementPrice struct {
	From         *time.Time  `json:"from"` // null: from the beginning
	PricePerHour money.Micro `json:"price_per_hour"`
	Items        []PriceItem `json:"items"`
}

// PriceItem is one item of a price.
type PriceItem struct {
	Label    string      `json:"label"`    // "4 × NVIDIA H100 80GB HBM3"
	Quantity int64       `json:"quantity"` // 4
	Unit     string      `json:"unit"`     // "gpu", "gb"
	UnitRate money.Micro `json:"unit_rate"`
	Rate     money.Micro `json:"rate"` // per hour
}

// EarningsStatement is what an operator's hosts earned over some days.
type EarningsStatement struct {
	From     string           `json:"from"` // first day, YYYY-MM-DD in the org's zone
	To       string           `json:"to"`   // last day
	Zone     string           `json:"zone"`
	Currency string           `json:"currency"`
	By       string           `json:"by"`
	Billed   money.Nano       `json:"billed"`   // to renters
	Fee      money.Nano       `json:"fee"`      // the platform's
	Earned   money.Nano       `json:"earned"`   // Billed less Fee
	Returned money.Nano       `json:"returned"` // went back to renters in this time, of earnings of this time or before
	Net      money.Nano       `json:"net"`      // Earned less Returned
	EnergyWh string           `json:"energy_wh"`
	Groups   []EarningsGroup  `json:"groups"`
	Lines    []EarningsLine   `json:"lines"`
	Leases   []EarningsLease  `json:"leases"`
	Returns  []EarningsReturn `json:"returns"`
	// Standby is what hosts received for standing by in gangs, and what the operator's bond paid.
	Standby         []EarningsStandby `json:"standby" doc:"received for standing by in gangs, and paid from your bond"`
	StandbyReceived money.Nano        `json:"standby_received" doc:"your part, after the fee; it is in neither earned nor net"`
	BondPaid        money.Nano        `json:"bond_paid" doc:"from your bond, to hosts of other operators that stood by"`
	Holdback        int64             `json:"holdback_seconds"`
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
	Key     string     `json:"key"`
	Name    string     `json:"name"`
	Seconds Seconds    `json:"seconds"`
	Billed  money.Nano `json:"billed"`
	Fee     money.Nano `json:"fee"`
	Earned  money.Nano `json:"earned"`
}

// EarningsLine is what a lease earned on one day at one price.
type EarningsLine struct {
	Day          string      `json:"day"`
	HostID       id.Host     `json:"host_id"`
	HostName     string      `json:"host"`
	Lease        id.Lease    `json:"lease_id"`
	GPUModel     string      `json:"gpu_model"`
	GPUs         int         `json:"gpus"`
	Seconds      Seconds     `json:"seconds"` // billed
	PricePerHour money.Micro `json:"price_per_hour"`
	SharePPM     int64       `json:"host_share_ppm"`
	Billed       money.Nano  `json:"billed"`
	Fee          money.Nano  `json:"fee"`
	Earned       money.Nano  `json:"earned"`
	EnergyWh     string      `json:"energy_wh"`
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
