"""What a loader declares, read: records by number, in a seeded order, ahead of the device."""
