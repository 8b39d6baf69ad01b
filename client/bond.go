package client

import (
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

// BondWithdrawal says where a withdrawal went.
type BondWithdrawal struct {
	ToBalance money.Nano `json:"to_balance" doc:"what had come out of your balance"`
	ToPayable money.Nano `json:"to_payable" doc:"the rest: earnings, paid out with the next payout"`
	Bond      Bond       `json:"bond" doc:"after it"`
}

// Liability is what a lease would be liable for in a gang.
type Liability struct {
	Nodes  int        `json:"nodes"`
	Amount money.Nano `json:"amount"`
}

// BondAmount is the body of DepositBond and WithdrawBond.
type BondAmount struct {
	Amount string `json:"amount" doc:"a decimal" example:"25.00"`
}

// ChangeBondTermsRequest is the body of ChangeBondTerms.
type ChangeBondTermsRequest struct {
	RetainPPM      *int64  `json:"retain_ppm,omitempty" doc:"0 to 1000000; left out: as it is" example:"250000"`
	AcceptUnbonded *bool   `json:"accept_unbonded,omitempty" doc:"left out: as it is"`
	LiabilityMax   *string `json:"gang_liability_max,omitempty" doc:"a decimal, or \"none\" for no limit; left out: as it is" example:"25.00"`
}

// ChangeHostLiabilityRequest is the body of ChangeHostLiability.
type ChangeHostLiabilityRequest struct {
	LiabilityMax string `json:"gang_liability_max" doc:"a decimal, or \"none\": your organisation's limit applies" example:"25.00"`
}

// LiabilityQuery describes a lease in a gang.
type LiabilityQuery struct {
	Nodes int    `query:"nodes" minimum:"2" maximum:"128" required:"true" doc:"of the gang" example:"8"`
	Price string `query:"price_per_hour" required:"true" doc:"of each of the other nodes, a decimal" example:"20.00"`
}

// GangsQuery selects how far back a report of gangs goes.
type GangsQuery struct {
	Days int `query:"days" minimum:"1" maximum:"366" default:"30" doc:"how far back strikes, relief and unbilled time go"`
}
