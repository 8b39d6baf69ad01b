package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
)

// Bucket is an S3-compatible store of the organisation's own, with the credentials for it.
type Bucket struct {
	ID          id.Bucket `json:"id"`
	Name        string    `json:"name" doc:"unique among your organisation's buckets"`
	Endpoint    string    `json:"endpoint" doc:"address of the store" example:"https://s3.eu-central-1.amazonaws.com"`
	Region      string    `json:"region" doc:"the bucket's region" example:"eu-central-1"`
	Bucket      string    `json:"bucket" doc:"the bucket's name in the store" example:"acme-results"`
	Prefix      string    `json:"prefix" doc:"of all keys, such as a folder; empty: the whole bucket" example:"runs"`
	Mode        string    `json:"mode" enum:"rw,ro" doc:"what the credentials are for: rw: reading and writing; ro: reading only"`
	AccessKeyID string    `json:"access_key_id" doc:"the access key; its secret is never shown" example:"AKIAIOSFODNN7EXAMPLE"`
	CreatedAt   time.Time `json:"created_at"`
	CheckedAt   time.Time `json:"checked_at" doc:"when the credentials were last checked against the store"`
	Problem     string    `json:"problem" doc:"what was wrong then; empty: nothing" example:"bucket: the store has no bucket acme-results"`
}

// NewBucket is a bucket to add. Its secret is stored encrypted.
type NewBucket struct {
	Name            string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" patternDescription:"lower-case letters, digits and dashes, such as my-data" doc:"lower-case letters, digits and dashes" example:"results"`
	Endpoint        string `json:"endpoint" maxLength:"300" doc:"address of the store, on the internet: https://host[:port]" example:"https://s3.eu-central-1.amazonaws.com"`
	Region          string `json:"region,omitempty" maxLength:"64" doc:"left out: us-east-1, which stores without regions accept" example:"eu-central-1"`
	Bucket          string `json:"bucket" maxLength:"63" doc:"the bucket's name in the store" example:"acme-results"`
	Prefix          string `json:"prefix,omitempty" maxLength:"500" doc:"of all keys, such as a folder; left out: the whole bucket" example:"runs"`
	Mode            string `json:"mode,omitempty" enum:"rw,ro" doc:"rw, by default: a small object is stored and deleted to see that the credentials may write; ro: only reading is checked"`
	AccessKeyID     string `json:"access_key_id" maxLength:"200" doc:"id of the access key" example:"AKIAIOSFODNN7EXAMPLE"`
	SecretAccessKey string `json:"secret_access_key" maxLength:"500" doc:"secret of the access key; it is never shown again" example:"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"`
}

// BucketCredentials replace those of a bucket.
type BucketCredentials struct {
	AccessKeyID     string `json:"access_key_id" maxLength:"200" doc:"id of the new access key" example:"AKIAIOSFODNN7EXAMPLE"`
	SecretAccessKey string `json:"secret_access_key" maxLength:"500" doc:"secret of the new access key" example:"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"`
}
