package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Bond is the money with which an operator answers for its hosts in gangs with other operators' hosts.
type Bond struct {
	Free        money.Nano      `json:"free" doc:"not reserved for a lease"`
	Claimed     money.Nano      `json:"claimed" doc:"of what is free, held back because payments that you earned from or made are disputed or in review: it cannot be withdrawn"`
	Reserved    money.Nano      `json:"reserved" doc:"for leases in gangs with other operators' hosts"`
	Deposited   money.Nano      `json:"deposited" doc:"of both, what came out of your balance: it goes back there when you withdraw"`
	Depositable money.Nano      `json:"depositable" doc:"could be deposited from your balance now; promotional credit cannot"`
	Terms       BondTerms       `json:"terms"`
	Leases      []BondLease     `json:"leases" doc:"what is reserved, newest first, at most 200"`
	Standby     []BondStandby   `json:"standby" doc:"what your hosts were paid for standing by, and what your bond paid, newest first, at most 200"`
	Relief      []BondRelief    `json:"relief" doc:"what the platform paid your hosts for standing by while no host was to blame, newest first, at most 200"`
	Hosts       []BondHostLimit `json:"hosts" doc:"hosts with a limit of their own"`
	Currency    string          `json:"currency"`
}

// BondHostLimit is the most that one lease of a host may be liable for.
type BondHostLimit struct {
	Host  id.Host    `json:"host_id"`
	Limit money.Nano `json:"gang_liability_max"`
}

// BondTerms are what an operator has decided about its bond.
type BondTerms struct {
	RetainPPM      int64       `json:"retain_ppm" doc:"part of maturing earnings that is kept as bond, in millionths, until the bond is what 10 hours of your GPUs usually cost: the median price of each model" example:"250000"`
	AcceptUnbonded bool        `json:"accept_unbonded" doc:"whether hosts without a bond may join yours in gangs whose renter allows it (trust: any); when such a host fails, no one pays yours"`
	LiabilityMax   *money.Nano `json:"gang_liability_max" doc:"the most that one lease of yours may be liable for; null: no limit"`
}

// BondLease is what is reserved for one lease.
type BondLease struct {
	Lease    id.Lease   `json:"lease_id"`
	Cluster  id.Cluster `json:"cluster_id"`
	Host     id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Rank     int        `json:"rank"`
	Liable   money.Nano `json:"liable_for" doc:"at most, at a time: 300 s of standby of the other operators' ranks"`
	Left     money.Nano `json:"reserved" doc:"of your bond now"`
	Since    time.Time  `json:"since"`
	Ended    *time.Time `json:"ended_at" doc:"null while the lease lives; what is reserved is released once its cluster is settled"`
}

// BondStandby is what one lease was paid for standing by, or what its bond paid.
type BondStandby struct {
	Cluster     id.Cluster `json:"cluster_id"`
	HostName    string     `json:"host_name" doc:"your host"`
	Received    bool       `json:"received" doc:"true: your host stood by; false: it failed, and your bond paid"`
	VictimRank  int        `json:"victim_rank" doc:"the rank that stood by"`
	CulpritRank int        `json:"culprit_rank" doc:"the rank that failed"`
	Millis      int64      `json:"standby_ms"`
	Amount      money.Nano `json:"amount" doc:"from the failing host's bond, the platform's fee included"`
	HostPart    money.Nano `json:"host_part" doc:"of it, earned by the host that stood by"`
	At          time.Time  `json:"at"`
	Why         []string   `json:"why" doc:"a sentence for each time span, with what it rests on"`
}

// BondRelief is what the platform paid for standing by while no host was to blame.
type BondRelief struct {
	Cluster  id.Cluster `json:"cluster_id"`
	HostName string     `json:"host_name"`
	Rank     int        `json:"rank"`
	Millis   int64      `json:"standby_ms"`
	Amount   money.Nano `json:"amount"`
	At       time.Time  `json:"at"`
	Why      []string   `json:"why" doc:"a sentence for each time span"`
}

// Suspension is time of a cluster that its renter did not pay for.
type Suspension struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	Class    string     `json:"class" enum:"platform,proof,silence,undecided" doc:"platform: we lost contact with the hosts. proof: the culprits did not prove that they were up. silence: two ranks lost contact with each other, and the culprits' reports were missing or late. undecided: two ranks lost contact with each other, and nothing decides between them"`
	Culprits []int      `json:"culprit_ranks" doc:"ranks whose bonds pay those that stood by; empty: no host is to blame"`
	Why      string     `json:"why" doc:"the same in one sentence, with its evidence"`
	Evidence []Evidence `json:"evidence" doc:"what it rests on, in order of time"`
}

// Evidence is one fact that a suspension rests on.
type Evidence struct {
	Kind string    `json:"kind" enum:"missing_reports,late_reports,not_well,not_proven,did_not_hear" doc:"missing_reports and late_reports: of the rank's host. not_well: the host reported so itself. not_proven: neither a report nor a signed segment says that the rank was up. did_not_hear: the host signed that it received nothing from peer_rank"`
	Rank int       `json:"rank"`
	Peer *int      `json:"peer_rank" doc:"of did_not_hear; null otherwise"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Suspensions lists the decided suspensions of a gang in which the organisation has a host.
func (c *Client) Suspensions(ctx context.Context, cluster id.Cluster) (Page[Suspension], error) {
	return get[Page[Suspension]](ctx, c, "/bond/clusters/"+cluster.String()+"/suspensions", nil)
}

// Bond reads the organisation's bond.
func (c *Client) Bond(ctx context.Context) (Bond, error) {
	return get[Bond](ctx, c, "/bond", nil)
}

// BondChange changes the terms of a bond; nil fields stay as they are.
type BondChange struct {
	RetainPPM      *int64  `json:"retain_ppm,omitempty"`
	AcceptUnbonded *bool   `json:"accept_unbonded,omitempty"`
	LiabilityMax   *string `json:"gang_liability_max,omitempty"` // a decimal, or "none"
}

// ChangeBond changes the terms of the organisation's bond.
func (c *Client) ChangeBond(ctx context.Context, in BondChange) (out Bond, err error) {
	err = c.call(ctx, http.MethodPatch, "/bond", nil, in, &out)
	return out, err
}

// LimitHost sets the most that one lease of a host may be liable for: a decimal, or "none" for the organisation's
// limit.
func (c *Client) LimitHost(ctx context.Context, host id.Host, limit string) (out Bond, err error) {
	err = c.call(ctx, http.MethodPatch, "/bond/hosts/"+host.String(), nil, struct {
		LiabilityMax string `json:"gang_liability_max"`
	}{limit}, &out)
	return out, err
}

type bondAmount struct {
	Amount string `json:"amount"`
}

// DepositBond moves paid credit from the balance into the bond. amount is a decimal.
func (c *Client) DepositBond(ctx context.Context, amount string) (Bond, error) {
	return post[Bond](ctx, c, "/bond/deposits", bondAmount{amount})
}

// BondWithdrawal says where a withdrawal went.
type BondWithdrawal struct {
	ToBalance money.Nano `json:"to_balance" doc:"what had come out of your balance"`
	ToPayable money.Nano `json:"to_payable" doc:"the rest: earnings, paid out with the next payout"`
	Bond      Bond       `json:"bond" doc:"after it"`
}

// WithdrawBond takes out of the bond what is not reserved. amount is a decimal.
func (c *Client) WithdrawBond(ctx context.Context, amount string) (BondWithdrawal, error) {
	return post[BondWithdrawal](ctx, c, "/bond/withdrawals", bondAmount{amount})
}

// Liability is what a lease would be liable for in a gang.
type Liability struct {
	Nodes  int        `json:"nodes"`
	Amount money.Nano `json:"amount"`
}

// Liability asks what a lease would be liable for in a gang of so many nodes, each other one at a price per hour.
func (c *Client) Liability(ctx context.Context, nodes int, pricePerHour string) (Liability, error) {
	return get[Liability](ctx, c, "/bond/liability", url.Values{
		"nodes":          {strconv.Itoa(nodes)},
		"price_per_hour": {pricePerHour},
	})
}
