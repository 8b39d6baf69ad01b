// Package lifecycle is the state machine of a rented cluster, without a database: the states of clusters and nodes and
// the transitions between them, the reasons for which something ends, and Next, which decides from facts what happens.
package lifecycle

import "time"

// State is the state of a cluster. The values are those of the REST API.
type State string

const (
	Provisioning State = "provisioning" // a start is under way: free of charge
	Running      State = "running"      // every required rank is up: seconds count
	Degraded     State = "degraded"     // a rank is lost, or given up with on_node_failure: ignore
	Releasing    State = "releasing"    // ended for the renter; hosts are still cleaning up
	Released     State = "released"
	Failed       State = "failed"
)

// Ended reports whether the cluster runs nothing for its renter any more: nothing later is billed.
func (s State) Ended() bool { return s == Releasing || s == Released || s == Failed }

// Final reports whether no transition leaves the state.
func (s State) Final() bool { return s == Released || s == Failed }

// Actor is the cause of a transition.
type Actor string

const (
	ByRenter   Actor = "renter"
	ByHosts    Actor = "hosts"    // what they report
	ByWatchdog Actor = "watchdog" // time and money
	ByOperator Actor = "operator" // of the host
)

// Trigger is what happens to a cluster.
type Trigger string

const (
	OnRented         Trigger = "rented"
	OnAllAtBarrier   Trigger = "all_at_barrier"
	OnAllStarted     Trigger = "all_started"
	OnStartFailed    Trigger = "start_failed"
	OnStartTimeout   Trigger = "start_timeout"
	OnNodeLost       Trigger = "node_lost"
	OnNodeBack       Trigger = "node_back"
	OnRankIgnored    Trigger = "rank_ignored"
	OnResumed        Trigger = "resumed"
	OnReplacing      Trigger = "replacing"
	OnReplaced       Trigger = "replaced"
	OnReplaceWaiting Trigger = "replace_waiting" // in the timeline only: why a lost rank still waits
	OnLossFinal      Trigger = "loss_final"
	OnCompleted      Trigger = "completed"
	OnWorkloadFailed Trigger = "workload_failed"
	OnRestart        Trigger = "restart"
	OnRelease        Trigger = "release"
	OnMoneyOut       Trigger = "money_out"
	OnMaxDuration    Trigger = "max_duration"
	OnAllGone        Trigger = "all_gone"
)

// Transition is one row of the table: in state From, on Trigger, the cluster goes to state To.
type Transition struct {
	From  State
	On    Trigger
	To    State
	By    Actor
	Title string // the title in the renter's timeline
}

// transitions is all transitions of clusters. From "" is the creation.
var transitions = []Transition{
	{"", OnRented, Provisioning, ByRenter, "Rented"},

	{Provisioning, OnAllAtBarrier, Provisioning, ByHosts, "All ranks are ready and have reached each other: starting " +
		"the command"},
	{Provisioning, OnAllStarted, Running, ByHosts, "Running: every rank has started, and billing begins"},
	{Provisioning, OnReplacing, Degraded, ByWatchdog, "A rank was lost while starting again: looking for another host"},
	{Provisioning, OnStartFailed, Failed, ByHosts, "The start failed"},
	{Provisioning, OnStartTimeout, Failed, ByWatchdog, "Not ready in time"},
	{Provisioning, OnWorkloadFailed, Failed, ByHosts, "The command failed as it started"},
	{Provisioning, OnRestart, Provisioning, ByHosts, "The command failed as it started: starting again"},
	{Provisioning, OnMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Provisioning, OnRelease, Releasing, ByRenter, "Released"},

	{Running, OnNodeLost, Degraded, ByHosts, "A rank is not proven up: billing is suspended"},
	{Running, OnCompleted, Releasing, ByHosts, "Completed: exit code 0 on every rank"},
	{Running, OnWorkloadFailed, Failed, ByHosts, "The command failed"},
	{Running, OnRestart, Provisioning, ByHosts, "Starting again: billing is suspended until every rank has started"},
	{Running, OnMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Running, OnMaxDuration, Releasing, ByWatchdog, "Stopped: the longest duration is reached"},
	{Running, OnRelease, Releasing, ByRenter, "Released"},

	{Degraded, OnNodeBack, Running, ByHosts, "Every rank is proven up again: billing continues"},
	{Degraded, OnRankIgnored, Degraded, ByWatchdog, "Continuing without the lost rank"},
	{Degraded, OnResumed, Degraded, ByHosts, "Every remaining rank is proven up: billing continues for them"},
	{Degraded, OnNodeLost, Degraded, ByHosts, "One more rank is not proven up: billing is suspended"},
	{Degraded, OnReplacing, Degraded, ByWatchdog, "A rank is lost for good: looking for another host"},
	{Degraded, OnReplaced, Provisioning, ByWatchdog, "Another host takes the lost rank: starting again, billing is " +
		"suspended until every rank has started"},
	{Degraded, OnLossFinal, Failed, ByWatchdog, "A rank was lost"},
	{Degraded, OnCompleted, Releasing, ByHosts, "Completed: exit code 0 on every remaining rank"},
	{Degraded, OnWorkloadFailed, Failed, ByHosts, "The command failed"},
	{Degraded, OnMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Degraded, OnMaxDuration, Releasing, ByWatchdog, "Stopped: the longest duration is reached"},
	{Degraded, OnRelease, Releasing, ByRenter, "Released"},

	{Releasing, OnAllGone, Released, ByHosts, "All hosts are clean"},
}

// On returns the row for an event in a state.
func On(s State, e Trigger) (Transition, bool) {
	for _, t := range transitions {
		if t.From == s && t.On == e {
			return t, true
		}
	}
	return Transition{}, false
}

// Facts is everything that Next decides from. Times are on PostgreSQL's clock.
type Facts struct {
	Now           time.Time
	Go            bool      // the barrier of this epoch is released
	WindowOpen    bool      // seconds count at present
	StartDeadline time.Time // of the start under way
	RunUntil      time.Time // authorised through here; zero = not limited yet
	MoneyReason   Reason    // which limit stopped the last extension: budget_exhausted or funds_exhausted
	MaxUntil      time.Time // running_at + max_duration; zero = none
	RestartOnFail bool      // restart: on_failure, every rank can take part, and it has not failed too often in a row
	Ignore        bool      // on_node_failure: ignore
	Replace       bool      // on_node_failure: replace
	ReplaceUntil  time.Time // a lost rank waits for another host until then; zero = none waits
	ReplaceNote   string    // why none was found
	Ran           bool      // it has been running before the present start
	LossGrace     time.Duration
	StartSilence  time.Duration // after which a starting rank's host that says nothing is given up
	Dispute       Dispute
	Nodes         []NodeFacts
}

// Dispute is a dispute between ranks that claim to have lost contact while all their hosts are well, so that none is
// to blame.
type Dispute struct {
	Pairs [][2]int // none: there is no dispute
	Since time.Time
	Grace time.Duration // how long it may last
}

// NodeFacts is what is known of one rank.
type NodeFacts struct {
	Rank       int
	State      NodeState
	Reason     Reason
	Detail     string
	Required   bool // billed and waited for; false once given up
	Started    bool
	Exit       *int
	ExitSeen   time.Time // when it exited, as its host reports it
	ReportedAt time.Time // the last report, on the server's clock
	Since      time.Time // in State; later than that by the time in which its host could not be received
	Doubted    bool      // its host was in doubt too often within the last hour
	Gone       bool      // nothing is left on the host
	Ended      bool      // its lease has ended: it never comes back
}

// Decision is the outcome of Next.
type Decision struct {
	Transition
	Reason Reason
	Detail string // rank and exit code, for people
	Ranks  []int  // the ranks it is about
}

// Next returns the next transition that follows from the facts, or false if there is none. It is pure: the same facts
// give the same decision on every replica. Call and apply it until it returns none. Renting and releasing are not among
// its results, because renters request them; nor is a replacement, because it claims a host: see replace.go.
func Next(s State, f Facts) (Decision, bool) {
	switch s {
	case Provisioning:
		return first(s, f, lostAtStart, startFailed, progress, exited, startTimeout, moneyOut)
	case Running:
		return first(s, f, exited, newLoss, maxDuration, moneyOut)
	case Degraded:
		return first(s, f, exited, rankIgnored, lostForGood, lossFinal, undecidedFinal, newLoss, nodeBack, maxDuration,
			moneyOut)
	case Releasing:
		return first(s, f, allGone)
	}
	return Decision{}, false
}

type rule func(Facts) (Trigger, Decision)

func first(s State, f Facts, rules ...rule) (Decision, bool) {
	for _, r := range rules {
		e, d := r(f)
		if e == "" {
			continue
		}
		t, ok := On(s, e)
		if !ok {
			continue
		}
		d.Transition = t
		return d, true
	}
	return Decision{}, false
}
