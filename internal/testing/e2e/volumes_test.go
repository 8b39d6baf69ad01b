package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// countsSteps is a job that goes on from the step that it finds in its volume.
const countsSteps = `$| = 1;
my $n = 0;
if (open(my $f, "<", "/data/step")) { $n = <$f> + 0 }
print "begins at step $n\n";
while (1) {
  $n++;
  open(my $f, ">", "/data/step.tmp") or die "write: $!";
  print $f $n; close $f;
  rename("/data/step.tmp", "/data/step") or die "rename: $!";
  print "step $n\n";
  select(undef, undef, undef, 0.2);
}
`

var beginsAt = regexp.MustCompile(`begins at step (\d+)`)

// A host is gone for good while its job writes a volume: the cluster gets another host, on which the job finds what the
// last snapshot has, and loses nothing that was committed.
func TestAVolumeFollowsToAnotherHost(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	r := p.renter(t, 10*money.Unit)
	name := fmt.Sprintf("steps-%d", time.Now().UnixNano())
	v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: name, SizeGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	dear := 100 * money.Micro(money.Unit/1000) // whatever another test makes of the prices
	s := p.spec(1, 1, "perl", "-e", countsSteps)
	s.Image, s.OnNodeFailure, s.MaxPricePerHour = p.shellImage(t), "replace", &dear
	s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID}}
	c := r.run(t, s)
	r.awaitLine(t, c, 0, "step 5\n")
	if _, err := r.Volumes.Snapshot(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the snapshot is committed", func() bool {
		now, err := r.Volumes.Get(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now.HeadSeq >= 1
	})
	var kept bytes.Buffer
	if err := r.Volumes.GetContent(t.Context(), &kept, v.ID, "step", 1); err != nil {
		t.Fatal(err)
	}
	committed, err := strconv.Atoi(kept.String())
	if err != nil || committed < 5 {
		t.Fatalf("the snapshot has step %q: %v", kept.String(), err)
	}
	first := c.Nodes[0]
	p.node(t, c, 0).killContainer("guest")
	eventually(t, "another host runs the job", func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		c = now
		return now.State == client.Running && now.Epoch >= 2 && now.Nodes[0].HostID != first.HostID
	})
	var begun []string
	eventually(t, "the job on the other host has begun", func() bool {
		all := beginsAt.FindAllStringSubmatch(r.logs(t, c, 0), -1)
		if len(all) == 0 {
			return false
		}
		begun = all[len(all)-1]
		return begun[1] != "0"
	})
	if n, _ := strconv.Atoi(begun[1]); n < committed {
		t.Errorf("the job went on from step %d; step %d was committed", n, committed)
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, c, client.Released)
	r.settle(t, c)
}

// upload runs muster volume cp on a folder.
func (r *renter) upload(t *testing.T, dir, to string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "muster"), "volume", "cp", dir, to)
	cmd.Env = append(os.Environ(), "MUSTER_SERVER="+r.p.URL, "MUSTER_TOKEN="+r.token, "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("upload: %v\n%s", err, out)
	}
}
