package cloudtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"vigil/internal/bucket"
	"vigil/test/proc"
)

// locked makes a bucket whose objects can be neither replaced nor deleted for a day.
func (s *storage) locked(name string) {
	s.t.Helper()
	c := s3.New(s3.Options{BaseEndpoint: aws.String("http://" + s.address), Region: region,
		UsePathStyle: true,
		Credentials:  credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")})
	_, err := c.CreateBucket(s.t.Context(),
		&s3.CreateBucketInput{Bucket: &name, ObjectLockEnabledForBucket: aws.Bool(true)})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = c.PutObjectLockConfiguration(s.t.Context(),
		&s3.PutObjectLockConfigurationInput{Bucket: &name,
			ObjectLockConfiguration: &types.ObjectLockConfiguration{
				ObjectLockEnabled: types.ObjectLockEnabledEnabled,
				Rule:              &types.ObjectLockRule{DefaultRetention: &types.DefaultRetention{Mode: types.ObjectLockRetentionModeCompliance, Days: aws.Int32(1)}},
			}})
	if err != nil {
		s.t.Fatal(err)
	}
}

// A bucket with object lock: objects are neither replaced nor deleted, and each answer says why.
func TestObjectLock(t *testing.T) {
	s := startS3(t)
	s.locked("locked")
	b := open(t, s.url("locked", "prod/"))
	want := []byte("the first")
	if err := b.Put(t.Context(), "a", want); err != nil {
		t.Fatal(err)
	}
	err := b.Put(t.Context(), "a", []byte("the second"))
	t.Logf("put again: %v", err)
	if !errors.Is(err, bucket.ErrExists) {
		t.Errorf("put again: %v", err)
	}
	err = b.Delete(t.Context(), "a")
	t.Logf("delete: %v", err)
	if !errors.Is(err, bucket.ErrLocked) {
		t.Errorf("delete: %v", err)
	}
	if data, err := bucket.ReadAll(t.Context(), b, "a", 100); err != nil ||
		!bytes.Equal(data, want) {
		t.Errorf("%q, %v", data, err)
	}
}

// A member archives into a bucket with object lock, whose storage is killed during that, so that it
// puts objects again. Nothing can be deleted afterwards, and all of it is restored.
func TestMemberWithObjectLock(t *testing.T) {
	s := startS3(t)
	s.locked("locked")
	url := s.url("locked", "prod/")
	m := proc.Start(t, proc.Config{Program: proc.Vigil,
		Args: []string{"--archive=" + url, "--archive-program=" + program,
			"--archive-base-interval=1s"}})
	c := m.Client()
	for i := range 200 {
		if i%50 == 49 {
			s.kill()
			s.launch()
		}
		if _, err := c.Put(proc.Context(t), fmt.Sprintf("k%03d", i), "x"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // several objects
	}
	head, err := c.Get(proc.Context(t), "k199")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "all is archived", func() bool {
		client := http.Client{Timeout: 10 * time.Second}
		res, err := client.Get("http://" + m.Addr() + "/debug/archive")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var st struct {
			Revision int64 `json:"archived_revision"`
		}
		if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
			t.Fatal(err)
		}
		return st.Revision >= head.Header.Revision
	})
	m.Kill()
	n := 0
	b := open(t, url)
	for o, err := range bucket.All(t.Context(), b, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if err := b.Delete(t.Context(), o.Key); !errors.Is(err, bucket.ErrLocked) {
			t.Errorf("%s: %v", o.Key, err)
		}
	}
	t.Logf("%d objects", n)
	t.Log(vigilctl(t, "archive", "verify", url, "--bucket-program", program))
	r, _ := restored(t, url)
	res, err := r.Client().Get(proc.Context(t), "k199")
	if err != nil || len(res.Kvs) != 1 || res.Header.Revision != head.Header.Revision {
		t.Errorf("%v, %v", res, err)
	}
}
