// Package notice reads what a cloud announces about the virtual machine that the agent runs on: that it will be taken
// away, restarted or moved. A cloud announces this through its metadata service, between 30 seconds and days before.
//
// Which cloud it is, if any, is read from the firmware's tables (DMI): no machine elsewhere gets a request. A service
// that does not answer announces nothing.
package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Cloud is a cloud whose metadata service this package knows.
type Cloud string

// The clouds.
const (
	None   Cloud = ""
	AWS    Cloud = "AWS"
	Google Cloud = "Google Cloud"
	Azure  Cloud = "Azure"
)

// azureTag is the asset tag of Azure's virtual machines. Their vendor alone would name every Hyper-V machine, too.
const azureTag = "7783-7084-3265-9085-8269-3286-77"

// CloudOf returns the cloud of the machine whose sysfs is at root, "" = /sys.
func CloudOf(root string) Cloud {
	if root == "" {
		root = "/sys"
	}
	fact := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(root, "class/dmi/id", name))
		return strings.TrimSpace(string(b))
	}
	switch vendor := fact("sys_vendor"); {
	case vendor == "Amazon EC2":
		return AWS
	case vendor == "Google" && fact("product_name") == "Google Compute Engine":
		return Google
	case vendor == "Microsoft Corporation" && fact("chassis_asset_tag") == azureTag:
		return Azure
	}
	return None
}

// Notice is one announcement.
type Notice struct {
	What string // "Preempt", "instance-stop"; in the cloud's words
	When string // as the cloud wrote it; "" = not announced
}

// Reader reads a cloud's metadata service.
type Reader struct {
	Cloud Cloud
	Base  string // address of the service; default: http://169.254.169.254
	HTTP  *http.Client
}

// New returns the reader of a cloud's service at the address that all clouds use for it.
func New(c Cloud) Reader {
	// No proxy: the address is the machine's own link. No redirects: the answer must be the service's.
	client := &http.Client{
		Timeout:       3 * time.Second,
		Transport:     &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return Reader{Cloud: c, Base: "http://169.254.169.254", HTTP: client}
}

// Read returns what the cloud announces now.
func (r Reader) Read(ctx context.Context) ([]Notice, error) {
	switch r.Cloud {
	case AWS:
		return r.aws(ctx)
	case Google:
		return r.google(ctx)
	case Azure:
		return r.azure(ctx)
	}
	return nil, nil
}

// maxAnswer limits how much of an answer is read.
const maxAnswer = 64 << 10

// get returns the body of an answer; nil if the service has no such entry.
func (r Reader) get(ctx context.Context, method, path string, header ...string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, method, r.Base+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	res, err := r.HTTP.Do(q)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, path, res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, maxAnswer))
}

// aws reads by version 2 of its service, which needs a token.
func (r Reader) aws(ctx context.Context) ([]Notice, error) {
	token, err := r.get(ctx, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if err != nil {
		return nil, err
	}
	get := func(path string, into any) error {
		b, err := r.get(ctx, http.MethodGet, "/latest/meta-data/"+path, "X-aws-ec2-metadata-token", string(token))
		if err != nil || len(bytes.TrimSpace(b)) == 0 {
			return err
		}
		return json.Unmarshal(b, into)
	}
	var out []Notice
	var spot struct{ Action, Time string }
	if err := get("spot/instance-action", &spot); err != nil {
		return nil, err
	}
	if spot.Action != "" {
		out = append(out, Notice{"spot instance: " + spot.Action, spot.Time})
	}
	var events []struct{ Code, NotBefore, State string }
	if err := get("events/maintenance/scheduled", &events); err != nil {
		return out, err
	}
	for _, e := range events {
		if e.State == "active" {
			out = append(out, Notice{e.Code, e.NotBefore})
		}
	}
	return out, nil
}

func (r Reader) google(ctx context.Context) ([]Notice, error) {
	get := func(name string) (string, error) {
		b, err := r.get(ctx, http.MethodGet, "/computeMetadata/v1/instance/"+name, "Metadata-Flavor", "Google")
		return strings.TrimSpace(string(b)), err
	}
	var out []Notice
	event, err := get("maintenance-event")
	if err != nil {
		return nil, err
	}
	if event != "" && event != "NONE" {
		out = append(out, Notice{What: event})
	}
	preempted, err := get("preempted")
	if err == nil && preempted == "TRUE" {
		out = append(out, Notice{What: "preempted"})
	}
	return out, err
}

func (r Reader) azure(ctx context.Context) ([]Notice, error) {
	b, err := r.get(ctx, http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", "Metadata", "true")
	if err != nil || b == nil {
		return nil, err
	}
	var doc struct {
		Events []struct{ EventType, EventStatus, NotBefore string }
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	var out []Notice
	for _, e := range doc.Events {
		if e.EventStatus != "Completed" {
			out = append(out, Notice{e.EventType, e.NotBefore})
		}
	}
	return out, nil
}

// Every is the time between requests: AWS announces the end of a spot instance two minutes before, Google and Azure 30
// seconds.
const Every = 5 * time.Second

// Watch calls changed with what the cloud announces, each time that it changes, until ctx ends. every is the time
// between requests. After an error the last announcements count.
func (r Reader) Watch(ctx context.Context, every time.Duration, changed func([]Notice)) {
	if r.Cloud == None {
		return
	}
	var last []Notice
	for {
		now, err := r.Read(ctx)
		if err == nil && !slices.Equal(now, last) {
			last = now
			changed(now)
		}
		t := time.NewTimer(every)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

// Problem returns the problem that keeps a host from new leases while its cloud announces something; nil if it does
// not.
func Problem(c Cloud, all []Notice) *agentapi.Problem {
	if len(all) == 0 {
		return nil
	}
	return &agentapi.Problem{
		Code:     "cloud_notice",
		Severity: "bad",
		Cause:    fmt.Sprintf("%s announces that this machine will be stopped, restarted or moved: no new leases.", c),
		Evidence: Text(all),
		Fix: "Nothing, if the machine may go: it is offered again when the announcement ends. Running leases go on until " +
			"then, and their renters receive a notice; muster host reclaim gives them a time.",
	}
}

// Text returns announcements for people, in the cloud's words.
func Text(all []Notice) string {
	var what []string
	for _, n := range all {
		s := n.What
		if n.When != "" {
			s += " at " + n.When
		}
		what = append(what, s)
	}
	return strings.Join(what, "; ")
}
