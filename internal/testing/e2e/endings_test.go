package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack/demoimage"
	"github.com/musterhq/muster/internal/money"
)

// plainImage is the demo's image without an entry point: what runs is what the renter's command names.
func (p *platform) plainImage(t *testing.T) string {
	t.Helper()
	from, err := name.ParseReference(p.DemoImage, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(from)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.Config.Entrypoint, cfg.Config.Cmd = nil, nil
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	to, err := name.NewTag(p.registry()+"/test/plain:1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, img); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// registry is the address of the platform's own.
func (p *platform) registry() string {
	addr, _, _ := strings.Cut(p.DemoImage, "/")
	return addr
}

// Every way a workload can end or not begin has its reason, its detail, and its price.
func TestEndings(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	plain := p.plainImage(t)
	for _, tc := range []struct {
		name    string
		image   string // "" = the demo's
		command []string
		nodes   int
		state   client.State
		reason  string
		detail  string
		free    bool
	}{
		{
			name:    "all exit 0",
			command: []string{"exit", "0"},
			nodes:   2,
			state:   client.Released,
			reason:  "completed",
			detail:  "rank 1 exit code 0",
		},
		{
			name:    "exit 3",
			command: []string{"exit", "3"},
			nodes:   2,
			state:   client.Failed,
			reason:  "workload_failed",
			detail:  "exit code 3",
		},
		{
			name:    "wrong arguments",
			command: []string{"dance"},
			nodes:   1,
			state:   client.Failed,
			reason:  "workload_failed",
			detail:  "rank 0 exit code 2",
		},
		{
			name:   "no such image",
			image:  p.registry() + "/test/absent:1",
			nodes:  1,
			state:  client.Failed,
			reason: "image_not_found",
			free:   true,
		},
		{
			name:   "no such tag",
			image:  p.registry() + "/" + demoimage.Repository + ":absent",
			nodes:  2,
			state:  client.Failed,
			reason: "image_not_found",
			free:   true,
		},
		{
			name:    "no such command",
			image:   plain,
			command: []string{"no-such-program"},
			nodes:   1,
			state:   client.Failed,
			reason:  "command_not_found",
			free:    true,
		},
		{name: "no command at all", image: plain, nodes: 1, state: client.Failed, reason: "command_not_found", free: true},
		{
			name:   "a private address",
			image:  "127.0.0.1:1/x/y:1",
			nodes:  1,
			state:  client.Failed,
			reason: "image_refused",
			free:   true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := p.renter(t, 10*money.Unit)
			s := p.spec(tc.nodes, 1, tc.command...)
			if tc.image != "" {
				s.Image = tc.image
			}
			c := r.rent(t, s)
			got, err := r.Clusters.Wait(t.Context(), c.ID, tc.state, nil)
			if err != nil || got.Reason != tc.reason || !strings.Contains(got.Detail, tc.detail) {
				t.Fatalf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
			}
			u := r.settle(t, c)
			if tc.free && (u.Cost != 0 || got.RunningAt != nil) {
				t.Errorf("cost %s, running at %v", u.Cost, got.RunningAt)
			}
			r.owes(t, u)
		})
	}
}

// A command whose name looks like an escaped NUL ends in the report of its host as it was written. Another renter's
// cluster on that host runs on, and ends when it is released.
func TestEnding_CostsNoNeighbour(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r, other := p.renter(t, 10*money.Unit), p.renter(t, 10*money.Unit)
	neighbour := other.run(t, p.spec(1, 1, "sleep", "600"))
	s := p.spec(1, 1, `/\u0000<&>\ud800`)
	s.Image, s.GPU = p.plainImage(t), "host_id="+neighbour.Nodes[0].HostID.String()
	c := r.rent(t, s)
	got, err := r.Clusters.Wait(t.Context(), c.ID, client.Failed, nil)
	if err != nil || got.Reason != "command_not_found" || !strings.Contains(got.Detail, s.Command[0]) {
		t.Fatalf("%s %s: %s (%v)\n%s", got.State, got.Reason, got.Detail, err, r.timeline(t, c))
	}
	r.settle(t, c)
	if now, err := other.Clusters.Get(t.Context(),
		neighbour.ID); err != nil || now.State != client.Running || !now.Billing {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := other.Clusters.Release(t.Context(), neighbour.ID); err != nil {
		t.Fatal(err)
	}
	other.await(t, neighbour, client.Released)
	if u := other.settle(t, neighbour); u.Cost <= 0 {
		t.Errorf("cost %s", u.Cost)
	}
}

// What distributed programs need to find each other is in every node's environment, and what the renter sets too.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	s := p.spec(2, 2, "env")
	s.Env = map[string]string{"EPOCHS": "3", "NCCL_DEBUG": "INFO"}
	c := r.await(t, r.rent(t, s), client.Released)
	for rank := range 2 {
		me := string(rune('0' + rank))
		env := strings.Split(r.logs(t, c, rank), "\n")
		for _, want := range []string{
			"MASTER_ADDR=10.77.0.1", "MASTER_PORT=29500", "NODE_RANK=" + me, "NNODES=2", "NPROC_PER_NODE=2",
			"PET_NODE_RANK=" + me, "PET_NNODES=2", "PET_NPROC_PER_NODE=2",
			"NCCL_SOCKET_IFNAME==ovl0", "NCCL_SOCKET_FAMILY=AF_INET", "NCCL_IB_DISABLE=1", "GLOO_SOCKET_IFNAME=ovl0",
			"NVIDIA_VISIBLE_DEVICES=void",
			"EPOCHS=3", "NCCL_DEBUG=INFO", "HOSTNAME=node-" + me,
		} {
			if !slices.Contains(env, want) {
				t.Errorf("rank %d lacks %s:\n%s", rank, want, strings.Join(env, "\n"))
			}
		}
	}
}

// A renter ends a running cluster: at once for them, in order on the hosts, and again is no error.
func TestRelease(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	c := r.run(t, p.spec(2, 1, "sleep", "600"))
	for range 2 {
		got, err := r.Clusters.Release(t.Context(), c.ID)
		if err != nil || got.Reason != "released_by_user" || !got.State.Ended() || got.Billing {
			t.Fatalf("%+v %v", got, err)
		}
	}
	r.await(t, c, client.Released)
	u := r.settle(t, c)
	if u.Cost <= 0 {
		t.Errorf("cost %s", u.Cost)
	}
	r.owes(t, u)
	early := r.rent(t, p.spec(1, 1, "sleep", "600"))
	if _, err := r.Clusters.Release(t.Context(), early.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, early, client.Released)
	r.owes(t, u, r.settle(t, early))
}

// Following a log ends with the cluster, and what a follower got is what is kept.
func TestLogsAreTheSameLiveAndKept(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	s := p.spec(2, 1, "train")
	s.Env = map[string]string{"TRAIN_STEPS": "60", "TRAIN_LOG_EVERY": "1"}
	c := r.rent(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	live := r.follow(ctx, t, c, 1)
	r.await(t, c, client.Released)
	r.settle(t, c)
	if kept := r.logs(t, c, 1); kept != live() || !strings.Contains(kept, "rank 1 done") ||
		strings.Count(kept, "\n") < 60 {
		t.Errorf("live:\n%s\nkept:\n%s", live(), kept)
	}
}
