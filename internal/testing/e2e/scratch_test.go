package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// fillsScratch is a job that says what it finds in its scratch, what room that gives it reads as, and how much it
// holds. Most of it is allocated, not written, which is quicker and the same to the file system.
const fillsScratch = `$| = 1;
my $dir = $ENV{MUSTER_SCRATCH};
opendir(my $d, $dir) or die "$dir: $!";
my $found = grep { !/^\.\.?$/ } readdir $d;
open(my $f, "+>", "$dir/fill") or die "fill: $!";
my $held = $ENV{MOST} + 0;
syscall($ENV{FALLOCATE} + 0, fileno($f), 0, 0, $held) == 0 or die "allocate: $!";
my $zeros = "yes";
for (1..64) { sysread($f, my $page, 1 << 20) == 1 << 20 or die "read: $!"; $zeros = "no" if $page =~ /[^\0]/ }
my $mark = $ENV{MARK} x (1 << 16);
sysseek($f, 0, 0);
for (1..16) { syswrite($f, $mark) or die "write: $!" }
sysseek($f, $held, 0);
my $end;
while (!defined $end) { my $n = syswrite($f, $mark); if (defined $n) { $held += $n } else { $end = "$!" } }
print "found $found, zeros $zeros, held $held, then: $end\n";
sleep 3600;
`

var filledScratch = regexp.MustCompile(`found (\d+), zeros (\w+), held (\d+), then: ([^\n]*)`)

// Two nodes ask for a gigabyte of scratch each, have all of it and no byte more, and find nothing of what was there
// before. When they are gone nothing is left of it on their hosts, and those who come after find nothing either.
func TestScratch(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	const each, most = 1_000_000_000, 900_000_000
	spec := p.spec(2, 1, "perl", "-e", fillsScratch)
	spec.Image, spec.ScratchGB = p.shellImage(t), each/1_000_000_000
	fallocate := map[string]int{"amd64": 285, "arm64": 47}[runtime.GOARCH]
	spec.Env = map[string]string{
		"FALLOCATE": strconv.Itoa(fallocate),
		"MOST":      strconv.Itoa(most),
		"MARK":      "what a renter wrote",
	}
	for _, who := range []string{"the first", "who comes after"} {
		r := p.renter(t, 10*money.Unit)
		c := r.run(t, spec)
		leases := p.leases(t.Context(), c)
		if len(leases) != 2 {
			t.Fatalf("%s: leases %v", who, leases)
		}
		for rank, lease := range leases {
			var said []string
			eventually(t, fmt.Sprintf("%s: rank %d has filled its scratch", who, rank), func() bool {
				said = filledScratch.FindStringSubmatch(r.logs(t, c, rank))
				return said != nil
			})
			held, err := strconv.ParseInt(said[3], 10, 64)
			if err != nil || said[1] != "0" || said[2] != "yes" || held > each || held < each*95/100 ||
				said[4] != "No space left on device" {
				t.Errorf("%s: rank %d says %q", who, rank, said[0])
			}
			if m := p.mounts(lease); len(m) != 1 {
				t.Errorf("%s: %s is mounted at %q", who, lease, m)
			}
		}
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		r.await(t, c, client.Released)
		r.settle(t, c)
		for _, lease := range leases {
			left, err := filepath.Glob(filepath.Join(p.dir, "hosts", "*", "scratch", "*", lease+"*"))
			if m := p.mounts(lease); err != nil || len(left)+len(m) != 0 {
				t.Errorf("%s: left of %s: %q %q %v", who, lease, left, m, err)
			}
		}
	}
}
