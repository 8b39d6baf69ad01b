package notice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo/sysfstest"
)

func TestCloudOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		vendor, product, tag string
		want                 Cloud
	}{
		{"Amazon EC2", "p5.48xlarge", "Amazon EC2", AWS},
		{"Google", "Google Compute Engine", "", Google},
		{"Google", "Pixel", "", None},
		{"Microsoft Corporation", "Virtual Machine", azureTag, Azure},
		{"Microsoft Corporation", "Virtual Machine", "1234", None},
		{"Supermicro", "SYS-821GE", "", None},
	} {
		root := t.TempDir()
		sysfstest.Write(t, root, "class/dmi/id/sys_vendor", tc.vendor+"\n")
		sysfstest.Write(t, root, "class/dmi/id/product_name", tc.product+"\n")
		sysfstest.Write(t, root, "class/dmi/id/chassis_asset_tag", tc.tag+"\n")
		if got := CloudOf(root); got != tc.want {
			t.Errorf("%+v is taken for %q", tc, got)
		}
	}
	if got := CloudOf(t.TempDir()); got != None {
		t.Errorf("a machine without DMI is taken for %q", got)
	}
}

// service is a fake metadata service, which refuses requests that the real one would refuse.
type service struct {
	mu      sync.Mutex
	entries map[string]string // by path
}

func (s *service) set(path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[path] = body
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := r.URL.Path; {
	case p == "/latest/api/token":
		if r.Method != http.MethodPut || r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			http.Error(w, "no ttl", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte("token-1"))
		return
	case strings.HasPrefix(p, "/latest/") && r.Header.Get("X-aws-ec2-metadata-token") != "token-1",
		strings.HasPrefix(p, "/computeMetadata/") && r.Header.Get("Metadata-Flavor") != "Google",
		strings.HasPrefix(p, "/metadata/") && (r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == ""):
		http.Error(w, "refused", http.StatusForbidden)
		return
	}
	body, ok := s.entries[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write([]byte(body))
}

func newService(t *testing.T, c Cloud) (*service, Reader) {
	t.Helper()
	s := &service{entries: map[string]string{}}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	r := New(c)
	r.Base = srv.URL
	return s, r
}

func TestAnnouncements(t *testing.T) {
	t.Parallel()
	const (
		aws    = "/latest/meta-data/"
		google = "/computeMetadata/v1/instance/"
		azure  = "/metadata/scheduledevents"
	)
	for _, tc := range []struct {
		name    string
		cloud   Cloud
		entries map[string]string
		want    []Notice
	}{
		{"AWS, nothing", AWS, nil, nil},
		{"AWS, a spot instance ends", AWS, map[string]string{
			aws + "spot/instance-action": `{"action": "terminate", "time": "2026-11-25T23:00:00Z"}`,
		}, []Notice{{"spot instance: terminate", "2026-11-25T23:00:00Z"}}},
		{"AWS, maintenance", AWS, map[string]string{aws + "events/maintenance/scheduled": `[
			{"Code": "instance-stop", "NotBefore": "28 Nov 2026 06:00:00 GMT", "State": "active"},
			{"Code": "system-reboot", "NotBefore": "1 Nov 2026 06:00:00 GMT", "State": "completed"}]`,
		}, []Notice{{"instance-stop", "28 Nov 2026 06:00:00 GMT"}}},
		{"Google, nothing", Google, map[string]string{google + "maintenance-event": "NONE\n", google + "preempted": "FALSE"},
			nil},
		{"Google, preempted", Google, map[string]string{google + "maintenance-event": "TERMINATE_ON_HOST_MAINTENANCE",
			google + "preempted": "TRUE"}, []Notice{{What: "TERMINATE_ON_HOST_MAINTENANCE"}, {What: "preempted"}}},
		{"Azure, nothing", Azure, map[string]string{azure: `{"DocumentIncarnation": 1, "Events": []}`}, nil},
		{"Azure, preempted", Azure, map[string]string{azure: `{"DocumentIncarnation": 2, "Events": [
			{"EventType": "Preempt", "EventStatus": "Scheduled", "NotBefore": "Wed, 25 Nov 2026 22:26:54 GMT"},
			{"EventType": "Reboot", "EventStatus": "Completed", "NotBefore": ""}]}`,
		}, []Notice{{"Preempt", "Wed, 25 Nov 2026 22:26:54 GMT"}}},
		{"elsewhere", None, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, r := newService(t, tc.cloud)
			for path, body := range tc.entries {
				s.set(path, body)
			}
			got, err := r.Read(t.Context())
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
			p := Problem(tc.cloud, got)
			if (p != nil) != (len(tc.want) > 0) {
				t.Fatalf("problem: %+v", p)
			}
			if p != nil && (p.Severity != "bad" || !strings.Contains(p.Evidence, tc.want[0].What)) {
				t.Errorf("problem: %+v", p)
			}
		})
	}
}

// An announcement is passed on once, stays while the service does not answer, and ends when the service withdraws it.
// An answer that does not come from the service announces nothing.
func TestWatch(t *testing.T) {
	t.Parallel()
	s, r := newService(t, Azure)
	const path = "/metadata/scheduledevents"
	s.set(path, `<html>a captive portal</html>`)
	changes := make(chan []Notice)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Watch(ctx, time.Millisecond, func(all []Notice) { changes <- all })
	}()
	s.set(path, `{"Events": [{"EventType": "Freeze", "EventStatus": "Scheduled"}]}`)
	if got := <-changes; !slices.Equal(got, []Notice{{What: "Freeze"}}) {
		t.Errorf("%+v", got)
	}
	s.set(path, `}`)
	s.set(path, `{"Events": []}`)
	if got := <-changes; len(got) != 0 {
		t.Errorf("%+v after the end", got)
	}
	cancel()
	<-done
	New(None).Watch(t.Context(), time.Hour, nil) // returns: no machine elsewhere is watched
}
