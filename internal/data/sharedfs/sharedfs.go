// Package sharedfs knows the file systems that operators share with renters: mounts that several of an operator's hosts
// have, NFS or CephFS for instance, with a folder for each renting organisation.
//
// What is in a folder is on the operator's file system only. It stays when a cluster ends, until its organisation
// deletes it, the organisation is deleted, or no cluster has used it for KeepFor.
//
// What always holds:
//   - A name is declared once on the platform, so that renters can name a file system by it.
//   - A host counts for a file system only if its operator declared it and the host found its marker there: two disks
//     that hosts report by one name are not taken for one.
//   - A folder belongs to one organisation. Its name on the disk is its id, which is never used again.
//   - A folder is not deleted while a cluster has it.
//   - A folder is erased once a host says that nothing of it is left. The platform cannot verify that.
package sharedfs

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// MaxPerOrg is how many file systems an operator may declare.
const MaxPerOrg = 50

// MaxQuotaGB is the greatest quota of an organisation.
const MaxQuotaGB = 1 << 20

// Kinds are the kinds of file systems, for renters to know.
var Kinds = []string{"nfs", "cephfs", "gluster", "lustre", "beegfs", "weka", "other"}

// NameShape is that of the names of file systems.
var NameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Shared are the use cases of shared file systems. Safe for concurrent use.
type Shared struct {
	d *db.DB
	b *bus.Bus // nil: hosts are not woken

	none *db.Gather[id.Host, struct{}] // stores that hosts have none
}

// New returns the use cases on d.
func New(d *db.DB, b *bus.Bus) *Shared {
	s := &Shared{d: d, b: b}
	s.none = db.NewGather(2, noneAtOnce, noneWithin, s.forgetHosts)
	return s
}

// FS is a shared file system as an organisation sees it.
type FS struct {
	ID        id.SharedFS
	Name      string
	Kind      string
	QuotaGB   int64
	Own       bool // the organisation declares it
	CreatedAt time.Time

	Hosts   int    // active ones that have it now
	Type    string // the kernel's name of it
	SizeGB  int64
	Regions []string

	Data *Data // of the organisation; nil: none

	Problems []Problem // on hosts; only for the operator
}

// Data is the folder of an organisation.
type Data struct {
	UsedBytes int64 // as last measured
	Closed    bool  // over the quota, and read-only where it is mounted
	Problem   string
	Clusters  int // that have it
	LastUsed  time.Time
	DeleteAt  time.Time // if no cluster uses it until then; zero while one has it
}

// Problem is why a host does not count for a file system.
type Problem struct{ Host, Problem string }

// NewFS is what to declare.
type NewFS struct {
	Name    string
	Kind    string // one of Kinds
	QuotaGB int64  // of each organisation
}

var errNone = fault.New(fault.NotFound, "shared file system not found")

func (n NewFS) check() error {
	var bad fault.Fields
	if !NameShape.MatchString(n.Name) {
		bad.Add("name", "want up to 63 lower-case letters, digits and dashes, such as lab-nfs")
	}
	if !slices.Contains(Kinds, n.Kind) {
		bad.Add("kind", "want one of nfs, cephfs, gluster, lustre, beegfs, weka, other")
	}
	if n.QuotaGB < 1 || n.QuotaGB > MaxQuotaGB {
		bad.Add("quota_gb", "want 1 to %d", MaxQuotaGB)
	}
	return bad.Err()
}

// Declare declares a file system of an operator. Faults: Invalid, Conflict if the name is used on the platform,
// QuotaExceeded.
func (s *Shared) Declare(ctx context.Context, who account.Principal, n NewFS, once idem.Request) (FS, idem.Outcome,
	error) {
	if err := n.check(); err != nil {
		return FS{}, idem.Outcome{}, err
	}
	return idem.Once(ctx, s.d, once, func(ctx context.Context, tx *db.Tx) (FS, error) {
		if err := tx.Q.LockSharedFSOfOrg(ctx, who.Org.String()); err != nil {
			return FS{}, fmt.Errorf("lock shared file systems of %s: %w", who.Org, err)
		}
		have, err := tx.Q.CountSharedFS(ctx, who.Org)
		if err != nil {
			return FS{}, fmt.Errorf("count shared file systems of %s: %w", who.Org, err)
		}
		if have >= MaxPerOrg {
			return FS{}, fault.New(fault.QuotaExceeded, "your organisation declares %d shared file systems: withdraw one first",
				have)
		}
		rows, err := tx.Q.InsertSharedFS(ctx, dbq.InsertSharedFSParams{
			ID: id.New[id.SharedFS](), OrgID: who.Org, Name: n.Name, Kind: n.Kind, QuotaGb: n.QuotaGB, CreatedBy: who.User,
		})
		if err != nil {
			return FS{}, fmt.Errorf("declare a shared file system of %s: %w", who.Org, err)
		}
		if len(rows) == 0 {
			return FS{}, fault.New(fault.Conflict, "the name %q is used on this platform: choose another one", n.Name)
		}
		r := rows[0]
		return FS{ID: r.ID, Name: r.Name, Kind: r.Kind, QuotaGB: r.QuotaGb, Own: true, CreatedAt: r.CreatedAt},
			audit.Record(ctx, tx, who.Event("shared.declare", r.ID.String(), map[string]any{
				"name": n.Name, "kind": n.Kind, "quota_gb": n.QuotaGB,
			}))
	})
}

// Withdraw ends the declaration of a file system. What is on it stays there, for the operator. Faults: NotFound;
// Conflict while organisations have data there that they have not deleted.
func (s *Shared) Withdraw(ctx context.Context, who account.Principal, fs id.SharedFS) error {
	return s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockSharedFS(ctx, fs, who.Org) // no cluster is rented with it from here on
		switch {
		case db.NoRows(err):
			return errNone
		case err != nil:
			return fmt.Errorf("lock %s: %w", fs, err)
		}
		n, err := tx.Q.CountLiveSharedFolders(ctx, fs)
		if err != nil {
			return fmt.Errorf("count folders of %s: %w", fs, err)
		}
		if n > 0 {
			whose := fmt.Sprintf("%d organisations have", n)
			if n == 1 {
				whose = "1 organisation has"
			}
			return fault.New(fault.Conflict, "%s data on %s: it is deleted %d days after the last cluster", whose, row.Name,
				int(KeepFor.Hours()/24))
		}
		if err := tx.Q.DeleteSharedFS(ctx, fs); err != nil {
			return fmt.Errorf("withdraw %s: %w", fs, err)
		}
		return audit.Record(ctx, tx, who.Event("shared.withdraw", fs.String(), map[string]any{"name": row.Name}))
	})
}

// List returns, by name, the file systems that hosts have now, those that the organisation declares, and those where it
// has data.
func (s *Shared) List(ctx context.Context, org id.Org) ([]FS, error) {
	rows, err := s.d.Q.ListSharedFS(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list shared file systems for %s: %w", org, err)
	}
	problems, err := s.d.Q.SharedHostProblems(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("list problems of shared file systems of %s: %w", org, err)
	}
	out := make([]FS, len(rows))
	for i, r := range rows {
		out[i] = FS{
			ID: r.ID, Name: r.Name, Kind: r.Kind, QuotaGB: r.QuotaGb, Own: r.OrgID == org, CreatedAt: r.CreatedAt,
			Hosts: int(r.Hosts), Type: r.FsType, SizeGB: r.SizeGb, Regions: r.Regions,
		}
		if !r.FolderID.IsZero() {
			out[i].Data = &Data{UsedBytes: r.UsedBytes, Closed: r.Closed, Problem: r.Problem, Clusters: int(r.Clusters),
				LastUsed: r.LastAt}
			if r.Clusters == 0 {
				out[i].Data.DeleteAt = r.LastAt.Add(KeepFor)
			}
		}
		for _, p := range problems {
			if p.SharedID == r.ID {
				out[i].Problems = append(out[i].Problems, Problem{p.HostName, p.Problem})
			}
		}
	}
	return out, nil
}

// Erase deletes an organisation's folder on a file system: a host that has it deletes the files. Faults: NotFound;
// Conflict while a cluster has it.
func (s *Shared) Erase(ctx context.Context, who account.Principal, fs id.SharedFS) error {
	err := s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		folder, err := tx.Q.LockSharedFolder(ctx, fs, who.Org) // no cluster is rented with it from here on
		switch {
		case db.NoRows(err):
			return fault.New(fault.NotFound, "your organisation has no data there")
		case err != nil:
			return fmt.Errorf("lock the folder on %s of %s: %w", fs, who.Org, err)
		}
		if err := erase(ctx, tx, folder); err != nil {
			return err
		}
		return audit.Record(ctx, tx, who.Event("shared.erase", fs.String(), map[string]any{"folder": folder.String()}))
	})
	if err != nil {
		return err
	}
	return s.wake(ctx, fs)
}

// erase marks a folder, which must be locked, as to be deleted.
func erase(ctx context.Context, tx *db.Tx, folder id.SharedData) error {
	users, err := tx.Q.ClustersOfSharedFolder(ctx, folder)
	if err != nil {
		return fmt.Errorf("list clusters that have %s: %w", folder, err)
	}
	if len(users) > 0 {
		return fault.New(fault.Conflict, "the cluster %s has it: release it first", users[0])
	}
	if err := tx.Q.DeleteSharedFolder(ctx, folder); err != nil {
		return fmt.Errorf("delete %s: %w", folder, err)
	}
	return nil
}

// wake sends the order to delete folders to the hosts that have a file system.
func (s *Shared) wake(ctx context.Context, fs id.SharedFS) error {
	hosts, err := s.d.Q.HostsOfShared(ctx, fs)
	if err != nil {
		return fmt.Errorf("hosts of %s: %w", fs, err)
	}
	return host.Wake(ctx, s.d, s.b, hosts)
}
