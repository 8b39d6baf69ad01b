package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// savesShards is a job of several ranks. Each writes its step to a file of its own and makes a checkpoint of all ranks;
// one that starts again must find the files of all of them, as of one step, which the label names.
const savesShards = `$| = 1;
my ($rank, $world) = ($ENV{RANK}, $ENV{WORLD_SIZE});
my $n = 0;
if (my $label = $ENV{MUSTER_RESUME_LABEL}) {
  my @have;
  for my $r (0 .. $world - 1) {
    open(my $f, "<", "/data/step.$r") or die "the file of rank $r: $!";
    push @have, <$f> + 0;
  }
  $n = $have[$rank];
  print "resumes at $label with @have\n";
}
while (1) {
  $n++;
  open(my $f, ">", "/data/step.$rank.tmp") or die "write: $!";
  print $f $n; close $f;
  rename("/data/step.$rank.tmp", "/data/step.$rank") or die "rename: $!";
  my $out = qx(/run/muster/guest checkpoint /data --label step_$n --all-ranks --timeout 300 2>&1);
  print "checkpoint $n ended with ", $? >> 8, ": $out";
}
`

var resumesAt = regexp.MustCompile(`resumes at step_(\d+) with ([0-9 ]+)`)

// Two ranks write shards of one volume and commit them together. The host of one is lost: the rank that replaces it,
// and the other one, go on with the shards of both, of the last checkpoint that both have made.
// MUSTER_TEST_RESUMES is how often, for a longer run.
func TestRanksResumeOnAnotherHost(t *testing.T) {
	t.Parallel()
	times, nodes := 1, 2
	if n, err := strconv.Atoi(os.Getenv("MUSTER_TEST_RESUMES")); err == nil {
		times, nodes = n, 4
	}
	p := own(t, "--hosts", strconv.Itoa(nodes+1), "--scratch-gb", "4")
	r := p.renter(t, 100*money.Unit)
	for i := range times {
		resumeRanks(t, p, r, nodes, i)
	}
}

func resumeRanks(t *testing.T, p *platform, r *renter, nodes, i int) {
	t.Helper()
	v, err := r.CreateVolume(t.Context(), client.NewVolume{Name: fmt.Sprintf("shards-%d", i), SizeGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := p.spec(nodes, 1, "perl", "-e", savesShards)
	s.Image, s.OnNodeFailure = p.shellImage(t), "replace"
	s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID, Mode: "ranks"}}
	c := r.run(t, s)
	r.awaitLine(t, c, 0, "checkpoint 1 ended with 0:")
	all, err := r.VolumeSnapshots(t.Context(), v.ID)
	if err != nil {
		t.Fatal(err)
	}
	committed := all.Items[0]
	if committed.Label == "" || !committed.Whole || committed.Files < int64(nodes) {
		t.Errorf("committed: %+v", committed)
	}
	lost := nodes - 1
	first := c.Nodes[lost]
	p.node(t, c, lost).killContainer("guest")
	eventually(t, "another host runs the rank", func() bool {
		now, err := r.Cluster(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s\n%s", now.State, now.Detail, r.timeline(t, c))
		}
		c = now
		return now.State == client.Running && now.Epoch >= 2 && now.Nodes[lost].HostID != first.HostID
	})
	label := ""
	for rank := range nodes {
		var m []string
		eventually(t, fmt.Sprintf("rank %d resumes", rank), func() bool {
			m = resumesAt.FindStringSubmatch(r.logs(t, c, rank))
			return m != nil
		})
		want := ""
		for range nodes {
			want += " " + m[1]
		}
		if n, _ := strconv.Atoi(m[1]); n < 1 || m[2] != want[1:] || label != "" && m[1] != label {
			t.Errorf("rank %d resumes at step %s with %q; rank 0 at step %s", rank, m[1], m[2], label)
		}
		label = m[1]
	}
	begun := time.Now()
	if _, err := r.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, c, client.Released)
	t.Logf("resume %d of %d ranks at step %s; released in %s", i+1, nodes, label, time.Since(begun).Round(time.Second))
	r.settle(t, c)
}
