package cluster

import "time"

// State of a cluster. The names are the REST API's.
type State string

const (
	Provisioning State = "provisioning" // a start is under way: free of charge
	Running      State = "running"      // every required rank is up: seconds count
	Degraded     State = "degraded"     // a rank is lost, or given up with on_node_failure: ignore
	Releasing    State = "releasing"    // ended for the renter; hosts are still cleaning up
	Released     State = "released"
	Failed       State = "failed"
)

// Ended reports whether the cluster no longer runs anything for its renter: nothing more is billed.
func (s State) Ended() bool { return s == Releasing || s == Released || s == Failed }

// Final reports whether no transition leaves the state.
func (s State) Final() bool { return s == Released || s == Failed }

// Actor is who causes a transition.
type Actor string

const (
	ByRenter   Actor = "renter"
	ByHosts    Actor = "hosts"    // what they report
	ByWatchdog Actor = "watchdog" // time and money
)

// Event is what happens to a cluster.
type Event string

const (
	EventRented         Event = "rented"
	EventAllAtBarrier   Event = "all_at_barrier"
	EventAllStarted     Event = "all_started"
	EventStartFailed    Event = "start_failed"
	EventStartTimeout   Event = "start_timeout"
	EventNodeLost       Event = "node_lost"
	EventNodeBack       Event = "node_back"
	EventRankIgnored    Event = "rank_ignored"
	EventResumed        Event = "resumed"
	EventLossFinal      Event = "loss_final"
	EventCompleted      Event = "completed"
	EventWorkloadFailed Event = "workload_failed"
	EventRestart        Event = "restart"
	EventRelease        Event = "release"
	EventMoneyOut       Event = "money_out"
	EventMaxDuration    Event = "max_duration"
	EventAllGone        Event = "all_gone"
)

// Transition is one row of the table: in From, on Event, go To.
type Transition struct {
	From  State
	Event Event
	To    State
	By    Actor
	Says  string // the title in the renter's timeline
}

// transitions is the whole life of a cluster. From "" is before it existed.
var transitions = []Transition{
	{"", EventRented, Provisioning, ByRenter, "Rented"},

	{Provisioning, EventAllAtBarrier, Provisioning, ByHosts, "All ranks are ready and have talked to each other: starting the command"},
	{Provisioning, EventAllStarted, Running, ByHosts, "Running: every rank has started, seconds count from now"},
	{Provisioning, EventStartFailed, Failed, ByHosts, "The start failed"},
	{Provisioning, EventStartTimeout, Failed, ByWatchdog, "Not ready in time"},
	{Provisioning, EventWorkloadFailed, Failed, ByHosts, "The command failed as it started"},
	{Provisioning, EventCompleted, Releasing, ByHosts, "Completed: exit code 0 on every rank"},
	{Provisioning, EventRestart, Provisioning, ByHosts, "The command failed as it started: starting again"},
	{Provisioning, EventMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Provisioning, EventRelease, Releasing, ByRenter, "Released"},

	{Running, EventNodeLost, Degraded, ByHosts, "A rank is not proven up: billing is suspended"},
	{Running, EventCompleted, Releasing, ByHosts, "Completed: exit code 0 on every rank"},
	{Running, EventWorkloadFailed, Failed, ByHosts, "The command failed"},
	{Running, EventRestart, Provisioning, ByHosts, "Starting again: billing is suspended until every rank has started"},
	{Running, EventMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Running, EventMaxDuration, Releasing, ByWatchdog, "Stopped: the longest duration is reached"},
	{Running, EventRelease, Releasing, ByRenter, "Released"},

	{Degraded, EventNodeBack, Running, ByHosts, "Every rank is proven up again: seconds count"},
	{Degraded, EventRankIgnored, Degraded, ByWatchdog, "Going on without the lost rank"},
	{Degraded, EventResumed, Degraded, ByHosts, "Every remaining rank is proven up: seconds count for them"},
	{Degraded, EventNodeLost, Degraded, ByHosts, "One more rank is not proven up: billing is suspended"},
	{Degraded, EventLossFinal, Failed, ByWatchdog, "A rank was lost"},
	{Degraded, EventCompleted, Releasing, ByHosts, "Completed: exit code 0 on every remaining rank"},
	{Degraded, EventWorkloadFailed, Failed, ByHosts, "The command failed"},
	{Degraded, EventMoneyOut, Releasing, ByWatchdog, "Stopped: the money ran out"},
	{Degraded, EventMaxDuration, Releasing, ByWatchdog, "Stopped: the longest duration is reached"},
	{Degraded, EventRelease, Releasing, ByRenter, "Released"},

	{Releasing, EventAllGone, Released, ByHosts, "All hosts are clean"},
}

// on finds the row for an event in a state.
func on(s State, e Event) (Transition, bool) {
	for _, t := range transitions {
		if t.From == s && t.Event == e {
			return t, true
		}
	}
	return Transition{}, false
}

// Facts is all that Next decides from. Times are PostgreSQL's.
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
	LossGrace     time.Duration
	Nodes         []NodeFacts
}

// NodeFacts is what is known of one rank.
type NodeFacts struct {
	Rank     int
	State    NodeState
	Reason   Reason
	Detail   string
	Required bool // billed and waited for; false once given up
	Started  bool
	Exit     *int
	ExitSeen time.Time // when the exit was first reported
	Heard    time.Time // the last report, on the server's clock
	Since    time.Time // in State
	Gone     bool      // nothing left on the host
}

// Decision is the outcome of Next.
type Decision struct {
	Transition
	Reason Reason
	Detail string // which rank, which exit code; for people
	Ranks  []int  // the ranks it is about
}

// Next decides the next transition from what is known, or says there is none. It is pure: the same facts give the
// same decision on every replica. The order of the rules is the order of their weight: an end by the renter or by
// money is applied by its own call; here failures come before time, time before progress.
func Next(s State, f Facts) (Decision, bool) {
	switch s {
	case Provisioning:
		return first(s, f, startFailed, exited, startTimeout, moneyOut, progress)
	case Running:
		return first(s, f, exited, lossFinal, newLoss, moneyOut, maxDuration)
	case Degraded:
		return first(s, f, exited, rankIgnored, lossFinal, newLoss, nodeBack, moneyOut, maxDuration)
	case Releasing:
		return first(s, f, allGone)
	}
	return Decision{}, false
}

type rule func(Facts) (Event, Decision)

func first(s State, f Facts, rules ...rule) (Decision, bool) {
	for _, r := range rules {
		e, d := r(f)
		if e == "" {
			continue
		}
		t, ok := on(s, e)
		if !ok {
			continue
		}
		d.Transition = t
		return d, true
	}
	return Decision{}, false
}
