package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
)

// StoreCheck is what the rounds of checks have found in the store of volumes.
type StoreCheck struct {
	ListedAt       *time.Time  `json:"listed_at" doc:"when the store was last listed from its first object to its last one; null: never"`
	ListFailingAt  *time.Time  `json:"list_failing_at" doc:"since when it does not list its objects; null: it does"`
	UnreadSince    *time.Time  `json:"unread_since" doc:"when the pack was read back, or stored, that was not read for the longest time; null: there is none"`
	UnknownObjects int64       `json:"unknown_objects" doc:"objects of known data domains that no row knows; they are deleted after some days" example:"0"`
	ForeignObjects int64       `json:"foreign_objects" doc:"other unknown objects that the last round has seen; they are left alone" example:"0"`
	ForeignExample string      `json:"foreign_example" doc:"the key of one of them; may be empty" example:"d/dom_01jd9w6n3qf8vtx2m5k7c4hzrb/7"`
	Packs          []StorePack `json:"packs" doc:"packs that are not in the store as they were stored, or for which it does not answer, up to 500"`
}

// StorePack is a pack that the store does not return as it was stored.
type StorePack struct {
	DomainID id.DataDomain    `json:"domain_id" doc:"the data domain that has it"`
	Number   int64            `json:"number" doc:"its number there" example:"17"`
	Key      string           `json:"key" doc:"of the object, below the store's prefix" example:"d/dom_01jd9w6n3qf8vtx2m5k7c4hzrb/17"`
	State    string           `json:"state" enum:"lost,damaged,silent" doc:"lost: the store does not have it; damaged: it has other bytes; silent: it does not answer"`
	Since    time.Time        `json:"since" doc:"when that was found"`
	Bytes    int64            `json:"bytes" doc:"its length" example:"16777216"`
	Needed   []StorePackOwner `json:"needed" doc:"the volumes with snapshots that need it"`
}

// StorePackOwner is a volume that needs a pack.
type StorePackOwner struct {
	OrgID     id.Org    `json:"org_id" doc:"the organisation that has it"`
	VolumeID  id.Volume `json:"volume_id" doc:"the volume"`
	Snapshots []int64   `json:"snapshots" doc:"the numbers of its snapshots that need the pack" example:"[12,13]"`
}
