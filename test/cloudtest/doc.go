// Package cloudtest tests vigil-bucket, as a process, with object storages that speak the APIs of
// the clouds: versitygw for S3, fake-gcs-server for Google Cloud Storage, and Azurite for Azure
// Blob. What a bucket must do, packages bucket and buckettest say; what depends on an archive in it
// is tested with vigil and vigilctl as processes.
//
// Azurite needs Node, and is installed in the directory azurite: make bucket-azure-test does that.
// Without it its tests are skipped. make bucket-test runs all others.
package cloudtest
