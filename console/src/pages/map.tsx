export default function MapPage() { return <h1>Map</h1>; }
