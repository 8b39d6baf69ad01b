package gpu

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// xidTable says what to do about each Xid, by the buckets of NVIDIA's Xid catalog. An Xid that is not in it is looked
// into: the GPU is suspect.
//
//go:embed xids.json
var xidTable []byte

// Buckets of Xids.
const (
	bucketIgnore     = "ignore"      // caused by the application
	bucketRestartApp = "restart_app" // ends the application, not the GPU: any program may cause it
	bucketResetGPU   = "reset_gpu"   // nothing on the GPU can be trusted before a reset
	bucketReboot     = "reboot"      // nothing on the GPU can be trusted before a reboot
)

type xidRule struct {
	Xid    int    `json:"xid"`
	Bucket string `json:"bucket"`
	What   string `json:"what"`
}

var xids = readXids(xidTable)

// readXids parses the table. It panics if the table is invalid: it is part of the program.
func readXids(table []byte) map[int]xidRule {
	var rules []xidRule
	if err := json.Unmarshal(table, &rules); err != nil {
		panic(err)
	}
	out := map[int]xidRule{}
	for _, r := range rules {
		out[r.Xid] = r
	}
	return out
}

// XidEvidence returns the evidence in an Xid event.
func XidEvidence(xid int) Evidence {
	e := Evidence{Kind: kindXid, Xid: xid, Weight: Suspect, Detail: fmt.Sprintf("Xid %d", xid)}
	rule, ok := xids[xid]
	if ok {
		e.Detail = fmt.Sprintf("Xid %d: %s", xid, rule.What)
	}
	switch rule.Bucket {
	case bucketIgnore:
		e.Weight = Healthy
	case bucketRestartApp:
		e.App = true
	case bucketResetGPU, bucketReboot:
		e.Weight = Quarantined
	}
	return e
}

// code returns the vendor's own name of what an event is about; "" if it has none.
func (e Evidence) code() string {
	if e.Code == "" && e.Xid != 0 {
		return fmt.Sprintf("xid-%d", e.Xid)
	}
	return e.Code
}
