package erasure_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// volumes returns the use cases of volumes, with a store that nothing serves.
func volumes(t *testing.T, d *db.DB) *volume.Volumes {
	t.Helper()
	folder, err := store.OpenFolder(t.TempDir(), "http://127.0.0.1", bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return volume.New(d, folder, volume.Config{Currency: "EUR", Box: fleettest.New(t, d).Box()})
}

// kept makes a volume whose one snapshot needs one pack of 1000 bytes, which is billed.
func kept(t *testing.T, d *db.DB, who account.Principal, name string) id.Volume {
	t.Helper()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	vol, _, err := volumes(t, d).Catalog.Create(t.Context(), who, volume.NewVolume{Name: name, SizeGB: 10}, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	session := id.New[id.DataSession]()
	exec(`INSERT INTO data_session (id, volume_id, domain_id, mode, base_seq, base_packs, expires_at, problem)
		SELECT $1, id, domain_id, 'rw', 1, $2, now() + interval '1 hour', 'Lovelace: disk full' FROM volume WHERE id = $3`,
		session, manifest.NewPackSet(1).Encode(), vol.ID)
	exec(`INSERT INTO data_pack (domain_id, n, session_id, state, sha256, bytes, url_until)
		SELECT domain_id, 1, $1, 'live', sha256('x'), 1000, now() FROM volume WHERE id = $2`, session, vol.ID)
	exec(`INSERT INTO volume_snapshot (volume_id, seq, id, root_id, root_pack, root_offset, root_length, root_size, packs,
			logical_bytes, added_bytes, files, cut_at, committed_at, cause, consistency, label)
		VALUES ($1, 1, $2, sha256('x'), 1, 0, 1, 1, $3, 4321, 1000, 5, now(), now(), 'job', 'exact', 'lovelace-1843')`,
		vol.ID, id.New[id.Snapshot](), manifest.NewPackSet(1).Encode())
	exec("UPDATE volume SET head_seq = 1 WHERE id = $1", vol.ID)
	exec("UPDATE data_domain SET bytes = 1000, next_pack = 2 WHERE id = (SELECT domain_id FROM volume WHERE id = $1)",
		vol.ID)
	exec(`INSERT INTO data_level (domain_id, from_at, bytes) SELECT domain_id, now(), 1000 FROM volume WHERE id = $1`,
		vol.ID)
	return vol.ID
}

// The export has what a person stores, and no key of it.
func TestExport_HasVolumes(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	kept(t, x.d, x.p, "training")
	for _, sql := range []string{
		"INSERT INTO shared_fs (id, org_id, name, kind, quota_gb, created_by) " +
			"SELECT gen_random_uuid(), $1, 'lab', 'nfs', 1, $1",
		"INSERT INTO shared_folder (id, shared_id, org_id, used_bytes) SELECT gen_random_uuid(), id, $1, 77 FROM shared_fs",
	} {
		if _, err := x.d.Pool.Exec(t.Context(), sql, x.p.Org); err != nil {
			t.Fatal(err)
		}
	}
	data, err := erasure.New(x.d, x.accounts.Passwords).Export(t.Context(), x.p)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		SharedData []struct {
			FileSystem string `json:"file_system"`
			Bytes      int64
		} `json:"shared_data"`
		Volumes []struct {
			Name      string
			SizeLimit int64  `json:"size_limit"`
			CreatedAt string `json:"created_at"`
			Snapshots []struct {
				Seq, Bytes  int64
				Label       string
				CommittedAt string `json:"committed_at"`
			}
		}
	}
	if err := json.Unmarshal(data, &out); err != nil || len(out.Volumes) != 1 || len(out.Volumes[0].Snapshots) != 1 {
		t.Fatalf("%s %v", data, err)
	}
	v := out.Volumes[0]
	if v.Name != "training" || v.SizeLimit != 10*volume.GB || v.CreatedAt == "" || v.Snapshots[0].Bytes != 4321 ||
		v.Snapshots[0].Label != "lovelace-1843" || v.Snapshots[0].CommittedAt == "" {
		t.Errorf("%+v", v)
	}
	if len(out.SharedData) != 1 || out.SharedData[0].FileSystem != "lab" || out.SharedData[0].Bytes != 77 {
		t.Errorf("shared data: %+v", out.SharedData)
	}
	if strings.Contains(string(data), "key_sealed") {
		t.Error("the export has a key")
	}
}

// With the person go the volumes of an organisation without other members: nothing is billed from then on, the key is
// destroyed, the packs are to be deleted, and the names are gone. While a cluster has a volume, nothing is erased.
func TestErase_DeletesVolumes(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	vol := kept(t, x.d, x.p, "lovelace-data")
	operator, owner := fleettest.Org(t, x.d)
	cl, lease := fleettest.Lease(t, x.d, fleettest.Enroll(t, x.d, operator, owner, 1).Host, x.p.Org)
	x.exec("INSERT INTO volume_mount (cluster_id, volume_id, mode) VALUES ($1, $2, 'rw')", cl, vol)
	if err := x.delete(true); fault.KindOf(err) != fault.Conflict {
		t.Fatal("while a cluster writes the volume:", err)
	}
	// The cluster ends for the standing, and not yet for the volume, as a rent does that commits in between.
	x.exec("UPDATE cluster SET state = 'released' WHERE id = $1", cl)
	x.exec("UPDATE lease SET settled_at = now() WHERE id = $1", lease)
	if err := x.delete(true); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "mounted") {
		t.Fatal("while a cluster has the volume:", err)
	}
	x.exec("UPDATE cluster SET ended_at = now() WHERE id = $1", cl)
	x.exec("UPDATE lease SET ended_at = now() WHERE id = $1", lease)
	if err := x.delete(true); err != nil {
		t.Fatal(err)
	}
	var state string
	var level int64
	var deleted, keyless bool
	if err := x.d.Pool.QueryRow(t.Context(), `SELECT v.deleted_at IS NOT NULL, d.key_sealed IS NULL, p.state,
		(SELECT bytes FROM data_level l WHERE l.domain_id = d.id ORDER BY from_at DESC LIMIT 1)
		FROM volume v JOIN data_domain d ON d.id = v.domain_id JOIN data_pack p ON p.domain_id = d.id WHERE v.id = $1`,
		vol).Scan(&deleted, &keyless, &state, &level); err != nil {
		t.Fatal(err)
	}
	if !deleted || !keyless || state != "doomed" || level != 0 {
		t.Errorf("deleted %t, without key %t, the pack is %s, %d bytes are billed", deleted, keyless, state, level)
	}
	for _, table := range []string{"volume", "volume_snapshot", "data_session"} {
		var n int
		if err := x.d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table+
			" x WHERE strpos(lower(x::text), 'lovelace') > 0").Scan(&n); err != nil || n > 0 {
			t.Errorf("%d rows of %s name the person: %v", n, table, err)
		}
	}
}

// The volumes of an organisation that goes on stay.
func TestErase_KeepsVolumesOfOthers(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	vol := kept(t, x.d, x.p, "data")
	other := id.New[id.User]()
	x.exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, 'b@c.d', 'x')", other)
	x.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", x.p.Org, other)
	if err := x.delete(false); err != nil {
		t.Fatal(err)
	}
	list, err := volumes(t, x.d).Catalog.List(t.Context(), x.p.Org)
	if err != nil || len(list) != 1 || list[0].ID != vol || list[0].StoredBytes != 1000 {
		t.Errorf("%+v %v", list, err)
	}
}
