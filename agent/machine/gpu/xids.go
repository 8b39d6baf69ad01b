package gpu

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// xidTable says what to do about each Xid. It has all 172 codes of NVIDIA's catalog as of October 2025 (Xid Errors,
// sheet "Catalog", https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), in buckets by the immediate
// action that the catalog names, with these exceptions: 13, 31, 45, 68 and 109 are ignored, as NVIDIA's device plugin
// for Kubernetes does, because programs cause them; 78 (UPDATE_SWFW), 142 (a video encoder) and 151 (RESTART_VM) end an
// application; 171 and 172, which accompany 48, need a reset as that does. The catalog names no action for 162 to 172,
// so what else is in that range is looked into.
//
//go:embed xids.json
var xidTable []byte

// Buckets of Xids.
const (
	bucketIgnore     = "ignore"      // caused by the application, or corrected
	bucketNotice     = "notice"      // not an error: the driver reports a change, which a look at the GPU shows
	bucketRestartApp = "restart_app" // ends the application, not the GPU: any program may cause it
	bucketUnused     = "unused"      // no current driver raises it: treated as an Xid that is not in the table
	bucketSuspect    = "suspect"     // the GPU's, and may pass
	bucketNVLink5    = "nvlink5"     // of an NVLink of the fifth generation: as severe as the kernel's log says
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

// XidEvidence returns the evidence in an Xid event. An Xid that the table does not have, or that no current driver
// raises, makes the GPU suspect and never quarantines it: a program may have caused it. If the driver knows of a
// defect, the next look at the GPU shows it.
func XidEvidence(xid int) Evidence {
	e := Evidence{Kind: kindXid, Xid: xid, Weight: Suspect, Detail: fmt.Sprintf("Xid %d", xid)}
	rule, ok := xids[xid]
	if ok {
		e.Detail = fmt.Sprintf("Xid %d: %s", xid, rule.What)
	}
	switch rule.Bucket {
	case bucketIgnore, bucketNotice:
		e.Weight = Healthy
	case bucketRestartApp, bucketUnused, bucketNVLink5, "":
		e.App = true // of NVLink errors whose severity is not known most are warnings
	case bucketResetGPU, bucketReboot:
		e.Weight = Quarantined
	}
	return e
}

// severityNonfatal is one of the two severities of NVLink errors in the kernel's log; the other is "fatal".
const severityNonfatal = "nonfatal"

// loggedXid returns the evidence in an Xid of the kernel's log, which reports how severe an NVLink error of the fifth
// generation is; "" if it does not. An error that is not fatal was corrected, and costs speed at most. After a fatal
// one the driver's recovery action decides, which the look that follows reads; the GPU is suspect, and as with other
// errors of the GPU itself the third within a day quarantines it.
func loggedXid(xid int, severity string) Evidence {
	e := XidEvidence(xid)
	if xids[xid].Bucket != bucketNVLink5 || severity == "" {
		return e
	}
	e.Detail += " (" + severity + ")"
	e.App = false
	if severity == severityNonfatal {
		e.Weight, e.Slower = Healthy, fmt.Sprintf("NVLink errors (Xid %d)", xid)
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
