package cluster

import "github.com/musterhq/muster/internal/agentapi"

// NodeState is the state of one rank. The names are the REST API's.
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
	NodeSaysPulling  NodeEvent = "says_pulling"
	NodeSaysStarting NodeEvent = "says_starting"
	NodeSaysJoining  NodeEvent = "says_joining"
	NodeSaysReady    NodeEvent = "says_ready"
	NodeSaysFailed   NodeEvent = "says_failed"
	NodeSaysExited   NodeEvent = "says_exited"
	NodeSaysStopping NodeEvent = "says_stopping"
	NodeSaysStopped  NodeEvent = "says_stopped"
	NodeSilent       NodeEvent = "silent"      // no report, or not proven up
	NodeHeard        NodeEvent = "heard"       // proven up again
	NodeDismissed    NodeEvent = "dismissed"   // no longer desired
	NodeGone         NodeEvent = "gone"        // nothing is left on its host, or its host is given up
	NodeAgain        NodeEvent = "start_again" // a new epoch
	NodeTakenBack    NodeEvent = "taken_back"  // its operator wants the machine
	NodeReplaced     NodeEvent = "replaced"    // another host takes the rank, in a new epoch
)

// NodeTransition is one row of the table.
type NodeTransition struct {
	From  NodeState
	Event NodeEvent
	To    NodeState
	By    Actor
	Says  string
}

// nodeTransitions is the whole life of a node. Within an epoch a start only goes forward: reports may be late,
// doubled or out of order, and a host may skip a step we never saw.
var nodeTransitions = []NodeTransition{
	{NodePending, NodeSaysPulling, NodePulling, ByHosts, "Pulling the image"},
	{NodePending, NodeSaysStarting, NodeStarting, ByHosts, "Starting the node's network"},
	{NodePulling, NodeSaysStarting, NodeStarting, ByHosts, "Starting the node's network"},
	{NodePending, NodeSaysJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodePulling, NodeSaysJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodeStarting, NodeSaysJoining, NodeJoining, ByHosts, "Joining the other ranks"},
	{NodePending, NodeSaysReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodePulling, NodeSaysReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodeStarting, NodeSaysReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},
	{NodeJoining, NodeSaysReady, NodeReady, ByHosts, "Ready: waiting for the other ranks"},

	{NodePending, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},
	{NodePulling, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},
	{NodeStarting, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},
	{NodeJoining, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},
	{NodeReady, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},
	{NodeLost, NodeSaysFailed, NodeFailed, ByHosts, "Failed"},

	{NodeReady, NodeSaysExited, NodeStopped, ByHosts, "The command ended"},
	{NodeLost, NodeSaysExited, NodeStopped, ByHosts, "The command ended"},
	{NodeReady, NodeSaysStopped, NodeStopped, ByHosts, "Stopped"},
	{NodeLost, NodeSaysStopped, NodeStopped, ByHosts, "Stopped"},

	{NodePending, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodePulling, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeStarting, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeJoining, NodeSilent, NodeLost, ByWatchdog, "Its host is silent"},
	{NodeReady, NodeSilent, NodeLost, ByWatchdog, "Lost: not proven up"},
	{NodeLost, NodeHeard, NodeReady, ByHosts, "Proven up again"},

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

// NextNode is the state a node goes to, or false when the event changes nothing.
func NextNode(s NodeState, e NodeEvent) (NodeTransition, bool) {
	for _, t := range nodeTransitions {
		if t.From == s && t.Event == e {
			return t, true
		}
	}
	return NodeTransition{}, false
}
