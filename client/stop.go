package client

// StopCause is what stops a running cluster next, unless something changes before.
type StopCause string

// The causes of a stop.
const (
	StopStart       StopCause = "start_deadline"
	StopDuration    StopCause = "max_duration"
	StopBudget      StopCause = "budget"
	StopOrgBudget   StopCause = "org_budget"
	StopFunds       StopCause = "funds"
	StopReclaim     StopCause = "host_reclaimed"
	StopReplacement StopCause = "no_replacement"
	StopNodeLost    StopCause = "node_lost"
)

// StopCauses are all causes of a stop.
var StopCauses = []StopCause{StopStart, StopDuration, StopBudget, StopOrgBudget, StopFunds, StopReclaim,
	StopReplacement, StopNodeLost}

// Why returns the cause in words.
func (c StopCause) Why() string {
	switch c {
	case StopStart:
		return "not every rank has started by then"
	case StopDuration:
		return "its longest duration is reached"
	case StopBudget:
		return "its budget is used up"
	case StopOrgBudget:
		return "the budget of its project or organisation is used up"
	case StopFunds:
		return "the wallet is empty"
	case StopReclaim:
		return "a host is taken back"
	case StopReplacement:
		return "no host has replaced the lost one by then"
	case StopNodeLost:
		return "a rank has not answered by then"
	}
	return ""
}
