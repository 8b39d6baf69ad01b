package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// ReduceRequest is what the nodes of a cluster measure together with NCCL. All get the same but the rank.
type ReduceRequest struct {
	Rank      int      `json:"rank"`      // of the node
	Addresses []string `json:"addresses"` // of the nodes on the overlay, by rank
	Port      int      `json:"port"`      // of rank 0, where the nodes meet
	JoinMS    int64    `json:"join_ms"`   // how long the others may take to come
	// Env are the variables of NCCL: which ports it uses. The image's and the renter's are not used.
	Env     map[string]string `json:"env"`
	MinGbps float64           `json:"min_gbps,omitempty"` // less fails the start
}

// Reduce configures one run of the measurement.
type Reduce struct {
	Command []string // program and first arguments
	Request ReduceRequest
	Limit   time.Duration // in total; 0 = DefaultLimit
	grace   time.Duration // tests'; 0 = five seconds
}

// preloads is read by every loader, and lets an image change what any program computes. Tests have another.
var preloads = "/etc/ld.so.preload"

// ReduceInContainer returns the command line of the measurement in a container where Dir is mounted.
func ReduceInContainer(simulated bool) []string {
	args := []string{Dir + "/" + loaderFile, "--library-path", Dir, Dir + "/" + programFile, "gpucheck", "nccl",
		"--nccl", Dir + "/" + ncclFile}
	if simulated {
		args = append(args, "--library", Dir+"/"+libraryFile, "--memory", "1")
	}
	return args
}

// Run measures. What cannot be measured is in the result, too: Kind and Detail say why.
func (r Reduce) Run(ctx context.Context) agentapi.NCCL {
	if info, err := os.Stat(preloads); err == nil && info.Size() > 0 {
		return agentapi.NCCL{Kind: agentapi.NCCLSetup,
			Detail: "the image has libraries loaded into every program (" + preloads + "), so nothing is measured in it"}
	}
	request, err := json.Marshal(r.Request)
	if err != nil {
		return agentapi.NCCL{Kind: agentapi.NCCLSetup, Detail: err.Error()}
	}
	var log ncclLog
	c := Check{Command: append(append([]string{}, r.Command...), "--request", string(request)), Limit: r.Limit,
		grace: r.grace, env: r.env(), other: log.read}
	res, err := c.Run(ctx)
	out := agentapi.NCCL{}
	switch {
	case errors.Is(err, ErrKilled):
		out.Kind, out.Detail = agentapi.NCCLSetup, "it was killed, probably for lack of memory"
	case err != nil:
		out.Kind, out.Detail = agentapi.NCCLSetup, err.Error()
	case res.Failure != nil:
		out.Kind, out.Detail = agentapi.NCCLFailed, res.Failure.Text
		if res.Failure.Kind == KindHang {
			out.Kind = agentapi.NCCLHang
		}
		if at := res.Failure.Step; at != "" {
			out.Detail = at + ": " + out.Detail
		}
		if res.reduce == nil && beforeMeeting(res.Failure.Step) {
			out.Kind = agentapi.NCCLSetup
		}
	case res.reduce == nil:
		out.Kind, out.Detail = agentapi.NCCLSetup, "no result"
	default:
		out = *res.reduce
	}
	log.judge(&out, r.Request)
	return out
}

// beforeMeeting reports whether a step is before all nodes have met, so that nothing of the network was used.
func beforeMeeting(step string) bool {
	switch step {
	case "", "load of the libraries", "start of CUDA", "all-reduce within the node", "meeting of the nodes":
		return true
	}
	return false
}

// env returns the program's environment: NCCL's log is how it says which transport it uses.
func (r Reduce) env() []string {
	out := []string{"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET,ENV", "NCCL_NET=IB", "NCCL_NET_PLUGIN=none",
		"NCCL_CONF_FILE=/dev/null"}
	for k, v := range r.Request.Env {
		if strings.HasPrefix(k, "NCCL_") && k != "NCCL_DEBUG" {
			out = append(out, k+"="+v)
		}
	}
	// libibverbs loads the ports' drivers by name from folders that an image need not have.
	if drivers := verbsDrivers(Dir); drivers != "" {
		out = append(out, "IBV_DRIVERS="+drivers)
	}
	return out
}

// ncclLog is what NCCL says of its transport.
type ncclLog struct {
	net   string
	rails map[string]bool
	gdr   bool
	warn  string // the first warning: later ones follow from it
	none  bool   // it found no RDMA device that it can use
}

var (
	usingNetwork = regexp.MustCompile(`NCCL INFO Using network (\S+)`)
	viaNet       = regexp.MustCompile(`\[send\] via NET/([^/\s]+)/(\d+)\S*`)
	warning      = regexp.MustCompile(`NCCL WARN (.*)`)
)

func (l *ncclLog) read(line string) {
	if m := usingNetwork.FindStringSubmatch(line); m != nil {
		l.net = m[1]
	}
	if m := viaNet.FindStringSubmatch(line); m != nil {
		if l.rails == nil {
			l.rails = map[string]bool{}
		}
		l.net, l.rails[m[2]] = m[1], true
		l.gdr = l.gdr || strings.Contains(m[0], "/GDRDMA")
	}
	if m := warning.FindStringSubmatch(line); m != nil && l.warn == "" {
		l.warn = m[1]
	}
	l.none = l.none || strings.Contains(line, "NET/IB : No device found") ||
		strings.Contains(line, "Failed to initialize NET plugin IB")
}

// judge adds what NCCL said to the result, and fails one that was not measured over the ports or is too slow.
func (l *ncclLog) judge(n *agentapi.NCCL, q ReduceRequest) {
	n.Net, n.Rails, n.GDR = l.net, len(l.rails), l.gdr
	switch {
	case (n.Kind == agentapi.NCCLFailed || n.Kind == agentapi.NCCLSetup) && l.none:
		n.Kind, n.Detail = agentapi.NCCLNoRDMA, "NCCL finds none of the RDMA ports that the host lends: "+n.Detail
	case n.Kind == "" && l.net != "IB":
		n.Kind, n.Detail = agentapi.NCCLNoRDMA, fmt.Sprintf("NCCL sent over %q and not over the RDMA ports", l.net)
	case n.Kind == "" && n.BusbwGbps < q.MinGbps:
		n.Kind, n.Detail = agentapi.NCCLSlow, fmt.Sprintf("all-reduce over RDMA reached %.1f Gbit/s, %g were asked for",
			n.BusbwGbps, q.MinGbps)
	}
	if n.Kind != "" && l.warn != "" {
		n.Detail += ". NCCL: " + l.warn
	}
	const most = 400
	if len(n.Detail) > most {
		n.Detail = strings.ToValidUTF8(n.Detail[:most], "") + "…"
	}
	if n.Kind != "" && n.Kind != agentapi.NCCLSlow {
		n.BusbwGbps, n.Bytes, n.Seconds = 0, 0, 0
	}
}
