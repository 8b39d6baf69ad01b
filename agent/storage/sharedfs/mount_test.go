package sharedfs

import (
	"slices"
	"testing"
)

// A folder's mounts are found as each client lists them, and those of other folders are not.
func TestMountsOfAFolder(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		found      bool
		want       []point
	}{
		{"a file system that lists the folder as the root",
			`700 34 0:40 /.muster/folders/shd_a /shared rw,nosuid,nodev - fuse.ceph-fuse ceph-fuse rw`,
			true, []point{{700, "/shared"}}},
		{"NFS, which lists it in the source",
			`701 34 0:22 / /with\040space rw,nosuid,nodev - nfs4 10.0.0.1:/export/.muster/folders/shd_a rw,vers=4.2`,
			true, []point{{701, "/with space"}}},
		{"a name that the kernel has dropped",
			`702 34 0:40 /.muster/folders/shd_a//deleted /shared rw master:1 - fuse.glusterfs lab rw`,
			true, []point{{702, "/shared"}}},
		{"closed already", `703 34 0:22 / /shared ro,nosuid,nodev - nfs4 10.0.0.1:/.muster/folders/shd_a rw`, true, nil},
		{"another organisation's", `704 34 0:22 / /shared rw - nfs4 10.0.0.1:/.muster/folders/shd_ab rw`, false, nil},
		{"a folder of that name elsewhere", `705 34 0:22 / /shared rw - nfs4 10.0.0.1:/folders/shd_a rw`, false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found := pointsOf(tc.line+"\n", "shd_a")
			if found != tc.found || !slices.Equal(got, tc.want) {
				t.Errorf("%v, found %t", got, found)
			}
		})
	}
}
