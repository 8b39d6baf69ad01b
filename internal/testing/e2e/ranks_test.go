//go:build long

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// savesShards is a training of several ranks. Each step changes a rank's state, which cannot be guessed without the
// state before it, and writes a shard made of it; then all ranks make a checkpoint together. A rank that starts again
// prints the step and the hash of every rank's shard as it finds them. In the first start the last rank stops before
// the second checkpoint, so that its host is lost while the others have prepared theirs; after the third step all rest.
const savesShards = `$| = 1;
my ($rank, $world, $label) = ($ENV{NODE_RANK}, $ENV{NNODES}, $ENV{MUSTER_RESUME_LABEL} // "");
my ($n, $state) = (0, 1);
if ($label ne "") {
  for my $r (0 .. $world - 1) {
    open(my $f, "<", "/data/shard.$r") or die "the shard of rank $r: $!";
    my ($step, $of) = split " ", scalar <$f>;
    my ($sum) = split " ", qx(sha256sum /data/shard.$r);
    print "resumes at $label: shard $r is of step $step, sha256 $sum\n";
    ($n, $state) = ($step, $of) if $r == $rank;
  }
}
while (1) {
  $n++;
  $state = ($state * 48271 + $n + $rank) % 2147483647;
  if ($n == 2 && $label eq "" && $rank == $world - 1) { print "holds back\n"; sleep 3600 }
  srand($state);
  open(my $f, ">", "/data/shard.$rank.tmp") or die "write: $!";
  print $f "$n $state\n", pack("N*", map { int(rand(4294967296)) } 1 .. 65536) or die "write: $!";
  close $f or die "write: $!";
  rename("/data/shard.$rank.tmp", "/data/shard.$rank") or die "rename: $!";
  my $out = qx(/run/muster/guest checkpoint /data --label step_$n --all-ranks --timeout 300 2>&1);
  print "step $n has state $state, its checkpoint ended with ", $? >> 8, ": $out";
  sleep 3600 if $n == 3;
}
`

// stateAt is the state of a rank of savesShards after a step.
func stateAt(step, rank int) int {
	state := 1
	for n := 1; n <= step; n++ {
		state = (state*48271 + n + rank) % 2147483647
	}
	return state
}

// shardAt is the shard that a rank of savesShards writes in a step. perl's rand is drand48.
func shardAt(step, rank int) []byte {
	state := stateAt(step, rank)
	b := fmt.Appendf(nil, "%d %d\n", step, state)
	x := uint64(state)<<16 + 0x330E
	for range 65536 {
		x = (x*0x5DEECE66D + 0xB) & (1<<48 - 1)
		b = binary.BigEndian.AppendUint32(b, uint32(x>>16))
	}
	return b
}

// Several ranks write shards of one volume, and the platform commits them together, once. The host of one is lost, its
// agent and its containers, while the others have prepared the next checkpoint: that one is not committed. Another host
// takes the rank, all ranks find every shard as the last commit has it, byte by byte, and the training goes on from
// there. MUSTER_TEST_RESUMES is how often, for a longer run.
func TestRanksResumeOnAnotherHost(t *testing.T) {
	t.Parallel()
	times, nodes := 1, 3
	if n, err := strconv.Atoi(os.Getenv("MUSTER_TEST_RESUMES")); err == nil {
		times, nodes = n, 4
	}
	p := own(t, "--hosts", strconv.Itoa(nodes+1), "--scratch-gb", "4")
	r := p.renter(t, money.Nano(100*times)*money.Unit)
	var all []client.Cluster
	for i := range times {
		// A host that fails in three gangs within an hour is banned from gangs: each turn begins without the failures of
		// the ones before.
		p.sql(t, "DELETE FROM gang_strike")
		all = append(all, resumeRanks(t, p, r, nodes, i))
	}
	for _, c := range all {
		r.settle(t, c)
	}
}

// resumeRanks is one turn. It returns the cluster once it is released.
func resumeRanks(t *testing.T, p *platform, r *renter, nodes, i int) client.Cluster {
	t.Helper()
	begun := time.Now()
	v, err := r.Volumes.Create(t.Context(), client.NewVolume{Name: fmt.Sprintf("shards-%d", i), SizeGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := p.spec(nodes, 1, "perl", "-e", savesShards)
	s.Image, s.OnNodeFailure = p.shellImage(t), "replace"
	s.Mounts = []client.Mount{{Path: "/data", Volume: v.ID, Mode: "ranks"}}
	c := r.run(t, s)
	r.awaitLine(t, c, 0, fmt.Sprintf("step 1 has state %d, its checkpoint ended with 0:", stateAt(1, 0)))
	r.committedOnce(t, v.ID, nodes, 1)
	eventually(t, "the others have prepared the second checkpoint", func() bool {
		return p.sql(t, "SELECT count(*) FROM volume_shard WHERE volume_id = $1 AND prepared IS NOT NULL AND "+
			"round = 'label:step_2'", v.ID) == int64(nodes-1)
	})
	prepared := time.Now()
	lost := nodes - 1
	c = r.loseHost(t, p, c, lost)
	replaced := time.Now()
	for rank := range nodes {
		for of := range nodes {
			r.awaitLine(t, c, rank, fmt.Sprintf("resumes at step_1: shard %d is of step 1, sha256 %x\n", of,
				sha256.Sum256(shardAt(1, of))))
		}
		r.awaitLine(t, c, rank, fmt.Sprintf("step 2 has state %d, its checkpoint ended with 0:", stateAt(2, rank)))
	}
	r.committedOnce(t, v.ID, nodes, 1, 2)
	went := time.Now()
	r.awaitLine(t, c, 0, fmt.Sprintf("step 3 has state %d, its checkpoint ended with 0:", stateAt(3, 0)))
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.await(t, c, client.Released)
	r.committedOnce(t, v.ID, nodes, 1, 2, 3)
	t.Logf("%d: two checkpoints after %s, replaced in %s, gone on in %s, released in %s", i+1,
		prepared.Sub(begun).Round(time.Second), replaced.Sub(prepared).Round(time.Second),
		went.Sub(replaced).Round(time.Second), time.Since(went).Round(time.Second))
	return c
}

// committedOnce checks that a volume has exactly one snapshot of all ranks for each of these steps, and no other
// labelled one, and that each reads back in full: every rank's shard of that step, byte by byte, and nothing else.
func (r *renter) committedOnce(t *testing.T, v id.Volume, nodes int, steps ...int) {
	t.Helper()
	all, err := r.Volumes.ListSnapshots(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	byLabel := map[string][]client.VolumeSnapshot{}
	for _, s := range all.Items {
		if s.Label != "" {
			byLabel[s.Label] = append(byLabel[s.Label], s)
		}
	}
	if len(byLabel) != len(steps) {
		t.Errorf("snapshots with labels: %+v, want one for each of %v", byLabel, steps)
	}
	for _, step := range steps {
		of := byLabel[fmt.Sprintf("step_%d", step)]
		if len(of) != 1 || !of[0].Whole || of[0].Cause != "checkpoint" || of[0].Files != int64(nodes) {
			t.Errorf("step %d was committed as %+v", step, of)
			continue
		}
		for rank := range nodes {
			var b bytes.Buffer
			name := fmt.Sprintf("shard.%d", rank)
			if err := r.Volumes.GetContent(t.Context(), &b, v, name, of[0].Seq); err != nil {
				t.Errorf("step %d: %s: %v", step, name, err)
				continue
			}
			if sha256.Sum256(b.Bytes()) != sha256.Sum256(shardAt(step, rank)) {
				head, _, _ := strings.Cut(b.String(), "\n")
				t.Errorf("step %d: %s has %d bytes that begin with %q", step, name, b.Len(), head)
			}
		}
	}
}
