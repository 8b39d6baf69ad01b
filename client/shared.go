package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
)

// SharedFS is a file system that several hosts of an operator have mounted, with a folder for each organisation that
// rents there.
type SharedFS struct {
	ID        id.SharedFS `json:"id"`
	Name      string      `json:"name" doc:"by which mounts name it, unique on the platform" example:"lab-nfs"`
	Kind      string      `json:"kind" enum:"nfs,cephfs,gluster,lustre,beegfs,weka,other" doc:"what it is, as its operator says"`
	Type      string      `json:"type" doc:"what the hosts' kernels call it; empty: no host has it now" example:"nfs4"`
	QuotaGB   int64       `json:"quota_gb" doc:"what an organisation may store there, in GB of 10⁹ bytes"`
	SizeGB    int64       `json:"size_gb" doc:"of all of it, in GB of 10⁹ bytes; 0: not known"`
	Hosts     int         `json:"hosts" doc:"how many hosts have it now"`
	Regions   []string    `json:"regions" doc:"where those are" example:"[\"eu-central\"]"`
	Own       bool        `json:"own" doc:"your organisation declares it"`
	CreatedAt time.Time   `json:"created_at"`
	Data      *SharedData `json:"data,omitempty" doc:"your organisation's folder there; left out: none"`
	// Problems are only for the operator.
	Problems []SharedProblem `json:"problems" doc:"why hosts of your organisation do not count for it"`
}

// SharedData is the folder of an organisation on a shared file system.
type SharedData struct {
	UsedBytes  int64      `json:"used_bytes" doc:"as last measured by a host, while a cluster has it"`
	Closed     bool       `json:"closed" doc:"it is over its quota, and was made read-only where it is mounted"`
	Problem    string     `json:"problem" doc:"why it could not be measured or made read-only; empty: nothing" example:"it cannot be measured: the file system does not answer"`
	Clusters   int        `json:"clusters" doc:"how many clusters have it"`
	LastUsedAt time.Time  `json:"last_used_at" doc:"when the last cluster that had it was rented or ended"`
	DeleteAt   *time.Time `json:"delete_at" doc:"when it is deleted unless a cluster uses it before; null while one has it"`
}

// SharedProblem is why a host does not count for a shared file system.
type SharedProblem struct {
	Host    string `json:"host" doc:"the host's name"`
	Problem string `json:"problem" doc:"what is wrong there" example:"/mnt/lab: nothing is mounted there: mount the shared file system first"`
}

// NewSharedFS is a shared file system to declare.
type NewSharedFS struct {
	Name    string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and dashes, such as lab-nfs" doc:"as in the agents' --shared NAME=PATH" example:"lab-nfs"`
	Kind    string `json:"kind" enum:"nfs,cephfs,gluster,lustre,beegfs,weka,other" doc:"what it is"`
	QuotaGB int64  `json:"quota_gb" minimum:"1" maximum:"1048576" doc:"what each organisation may store there, in GB of 10⁹ bytes" example:"500"`
}
