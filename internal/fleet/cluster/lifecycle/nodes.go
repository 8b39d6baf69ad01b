package lifecycle

import "github.com/musterhq/muster/internal/agentapi"

// NodeState is the state of one rank. The values are those of the REST API.
type NodeState string

const (
	NodePending  NodeState = "pending"
	NodePulling  NodeState = NodeState(agentapi.NodePulling)
	NodeStarting NodeState = NodeState(agentapi.NodeStarting)
	NodeJoining  NodeState = NodeState(agentapi.NodeJoining)
	NodeReady    NodeState = NodeState(agentapi.NodeReady)
	NodeLost     NodeState = "lost"
	NodeStopping NodeState = NodeState(agentapi.NodeStopping)
	NodeStopped  NodeState = NodeState(agentapi.NodeStopped)
	NodeFailed   NodeState = NodeState(agentapi.NodeFailed)
)

// NodeEvent is what happens to a node.
type NodeEvent string

const (
	NodeReportsPulling  NodeEvent = "says_pulling"
	NodeReportsStarting NodeEvent = "says_starting"
	NodeReportsJoining  NodeEvent = "says_joining"
	NodeReportsReady    NodeEvent = "says_ready"
	NodeReportsFailed   NodeEvent = "says_failed"
	NodeReportsExited   NodeEvent = "says_exited"
	NodeReportsStopping NodeEvent = "says_stopping"
	NodeReportsStopped  NodeEvent = "says_stopped"
	NodeSilent          NodeEvent = "silent"      // no report, or not proven up
	NodeRecovered       NodeEvent = "recovered"   // proven up again
	NodeDismissed       NodeEvent = "dismissed"   // no longer desired
	NodeGone            NodeEvent = "gone"        // nothing is left on its host, or its host is given up
	NodeAgain           NodeEvent = "start_again" // a new epoch
	NodeTakenBack       NodeEvent = "taken_back"  // its operator wants the machine
	NodeReplaced        NodeEvent = "replaced"    // another host takes the rank, in a new epoch
)

// NodeTransition is one row of the table.
type NodeTransition struct {
	From  NodeState
	Event NodeEvent
	To    NodeState
	By    Actor
	Title string
}

// nodeTransitions is all transitions of nodes. Within an epoch, a start only goes forward: reports may be late,
// repeated or out of order, and may skip a step.
var nodeTransitions = []NodeTransition{
	{NodePending, NodeReportsPulling, NodePulling, ByHosts, "Pulling the image"},
	{NodePending, NodeReportsStarting, NodeStarting, ByHosts, "Starting the node's network"},
	{NodePulling, NodeReportsStarting, NodeStarting, ByHosts, "Starting the node's network"},
	{NodePending, NodeReportsJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodePulling, NodeReportsJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodeStarting, NodeReportsJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodePending, NodeReportsReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodePulling, NodeReportsReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodeStarting, NodeReportsReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodeJoining, NodeReportsReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},

	{NodePending, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},
	{NodePulling, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},
	{NodeStarting, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},
	{NodeJoining, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},
	{NodeReady, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},
	{NodeLost, NodeReportsFailed, NodeFailed, ByHosts, "Failed"},

	{NodeReady, NodeReportsExited, NodeStopped, ByHosts, "The command ended"},
	{NodeLost, NodeReportsExited, NodeStopped, ByHosts, "The command ended"},
	{NodeReady, NodeReportsStopped, NodeStopped, ByHosts, "Stopped"},
	{NodeLost, NodeReportsStopped, NodeStopped, ByHosts, "Stopped"},

	{NodePending, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodePulling, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeStarting, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeJoining, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeReady, NodeSilent, NodeLost, ByWatchdog, "Lost: not proven up"},
	{NodeLost, NodeRecovered, NodeReady, ByHosts, "Proven up again"},

	{NodePending, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},
	{NodePulling, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},
	{NodeStarting, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},
	{NodeJoining, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},
	{NodeReady, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},
	{NodeLost, NodeTakenBack, NodeFailed, ByOperator, "Its host was taken back"},

	{NodePending, NodeDismissed, NodeStopping, ByWatchdog, "Stopping"},
	{NodePulling, NodeDismissed, NodeStopping, ByWatchdog, "Stopping"},
	{NodeStarting, NodeDismissed, NodeStopping, ByWatchdog, "Stopping"},
	{NodeJoining, NodeDismissed, NodeStopping, ByWatchdog, "Stopping"},
	{NodeReady, NodeDismissed, NodeStopping, ByWatchdog, "Stopping"},
	{NodeStopping, NodeGone, NodeStopped, ByHosts, "Stopped: nothing is left on the host"},

	{NodePulling, NodeAgain, NodePending, ByHosts, "Starting again"},
	{NodeStarting, NodeAgain, NodePending, ByHosts, "Starting again"},
	{NodeJoining, NodeAgain, NodePending, ByHosts, "Starting again"},
	{NodeReady, NodeAgain, NodePending, ByHosts, "Starting again"},
	{NodeStopped, NodeAgain, NodePending, ByHosts, "Starting again"},
	{NodeLost, NodeAgain, NodePending, ByWatchdog, "Starting again"}, // silent, but not for long: another rank is replaced

	{NodeLost, NodeReplaced, NodePending, ByWatchdog, "Another host takes its place"},
	{NodeFailed, NodeReplaced, NodePending, ByWatchdog, "Another host takes its place"},
	{NodeStopped, NodeReplaced, NodePending, ByWatchdog, "Another host takes its place"},
}

// NextNode returns the state that a node goes to; ok is false if the event changes nothing.
func NextNode(s NodeState, e NodeEvent) (NodeTransition, bool) {
	for _, t := range nodeTransitions {
		if t.From == s && t.Event == e {
			return t, true
		}
	}
	return NodeTransition{}, false
}
