"""From hosts to the exact commands and environments that start a run. Pure: nothing here touches a host."""
