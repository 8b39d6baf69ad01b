package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/sharedfs/sharedfstest"
	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// listsShared says what is in the shared folder. The image's perl has no glob.
const listsShared = `$| = 1;
sub has { opendir(my $d, "/shared") or die "list: $!"; join(" ", sort grep { !/^\./ } readdir $d) }
`

// passesNotes writes a file of its rank into a shared folder, and reads those of all ranks.
const passesNotes = listsShared + `
my ($rank, $world) = ($ENV{NODE_RANK}, $ENV{NNODES});
open(my $f, ">", "/shared/from-$rank.tmp") or die "write: $!";
print $f "rank $rank was here"; close $f or die "close: $!";
rename("/shared/from-$rank.tmp", "/shared/from-$rank") or die "rename: $!";
for my $other (0 .. $world - 1) {
  until (-e "/shared/from-$other") { select(undef, undef, undef, 0.1) }
  open(my $in, "<", "/shared/from-$other") or die "read: $!";
  print "read: ", scalar <$in>, "\n";
}
print "has: ", has(), "\n";
`

// Two hosts have a file system together. The nodes of a cluster read each other's files there, the organisation's next
// cluster finds them and cannot write them with mode ro, another organisation sees none of them, and a deletion removes
// them.
func TestNodesShareAFileSystem(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	path := sharedfstest.Ext4(t)
	name := fmt.Sprintf("lab-%d", time.Now().UnixNano())
	operator := p.as(t, p.OperatorToken)
	fs, err := operator.Shared.Declare(t.Context(), client.NewSharedFS{Name: name, Kind: "other", QuotaGB: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		shareHost(t, p, operator, fmt.Sprintf("shares-%d", i), name+"="+path)
	}
	r := p.renter(t, 20*money.Unit)
	eventually(t, "both hosts have it", func() bool {
		all, err := r.Shared.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all.Items {
			if f.Name == name {
				return f.Hosts == 2
			}
		}
		return false
	})
	dear := 100 * money.Micro(money.Unit/1000)
	job := func(r *renter, nodes int, mode, script string) (logs []string) {
		t.Helper()
		s := p.spec(nodes, 1, "perl", "-e", script)
		s.Image, s.MaxPricePerHour = p.shellImage(t), &dear
		s.Mounts = []client.Mount{{Path: "/shared", Shared: name, Mode: mode}}
		c := r.rent(t, s)
		done, err := r.Clusters.Wait(t.Context(), c.ID, client.Released, nil)
		if err != nil || done.Reason != "completed" {
			t.Fatalf("%s %s: %v\n%s\n%s", done.State, done.Detail, err, r.timeline(t, c), r.logs(t, c, 0))
		}
		r.settle(t, c)
		for rank := range nodes {
			logs = append(logs, r.logs(t, c, rank))
		}
		return logs
	}
	for rank, got := range job(r, 2, "rw", passesNotes) {
		if want := "read: rank 0 was here\nread: rank 1 was here\nhas: from-0 from-1\n"; got != want {
			t.Errorf("rank %d:\n%s", rank, got)
		}
	}
	const looks = listsShared + `print "has: ", has(), "\n";
open(my $f, ">", "/shared/more") or print "write: $!\n";`
	if got := job(r, 1, "ro", looks)[0]; got != "has: from-0 from-1\nwrite: Read-only file system\n" {
		t.Errorf("the next cluster: %s", got)
	}
	if got := job(p.renter(t, 20*money.Unit), 1, "rw", looks)[0]; got != "has: \n" {
		t.Errorf("another organisation: %s", got)
	}
	if err := r.Shared.EraseData(t.Context(), fs.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the files are deleted", func() bool {
		left, err := filepath.Glob(filepath.Join(path, ".muster", "folders", "*", "from-*"))
		return err == nil && len(left) == 0
	})
	if left, _ := filepath.Glob(filepath.Join(path, ".muster", "folders", "*", "more")); len(left) != 1 {
		t.Errorf("the other organisation's files: %s", strings.Join(left, " "))
	}
}

// shareHost starts a host of one GPU that has a shared file system, and puts it on the market.
func shareHost(t *testing.T, p *platform, operator *client.Client, name, shared string) {
	t.Helper()
	e, err := operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: name, Region: "eu-west",
		Fabric: ""})
	if err != nil {
		t.Fatal(err)
	}
	h := p.newHost(t, name, "NVIDIA GeForce RTX 3090", 1)
	if out, err := h.enroll(e.Token); err != nil {
		t.Fatalf("enrol: %v\n%s", err, out)
	}
	var who struct {
		Host id.Host `json:"host"`
	}
	if err := readJSON(filepath.Join(h.state, "identity.json"), &who); err != nil {
		t.Fatal(err)
	}
	h.flags = []string{"--shared", shared}
	h.start(t)
	eventually(t, "the host is reachable", func() bool {
		got, err := operator.Hosts.Get(t.Context(), who.Host)
		return err == nil && got.Reachable && len(got.Offers) == 1
	})
	price := money.Micro(6_000_000) // dearer than the shared hosts: no other test rents here
	if _, err := operator.Hosts.Change(t.Context(), who.Host,
		client.ChangeHostRequest{Price: new(price.String())}); err != nil {
		t.Fatal(err)
	}
}
